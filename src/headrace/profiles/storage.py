"""One set of storage credentials, translated for every engine."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from headrace.exceptions import StorageRefreshError

SECRET_FIELDS: Final = ("access_key", "secret_key", "session_token")
REFRESH_TIMEOUT_S: Final = 60
# Credentials are renewed this long before they end, so that a commit in flight isn't cut off.
REFRESH_MARGIN: Final = timedelta(minutes=5)
# A store that is busy answers 503 for a while; three tries, the usual number, end too soon.
_TRIES: Final = 6
_CONNECT_TIMEOUT_S: Final = 10
_ANSWER_TIMEOUT_S: Final = 60
# AWS tools (`aws configure export-credentials`) and ours, by what they mean here.
_PRINTED_KEYS: Final = {
    "AccessKeyId": "access_key",
    "SecretAccessKey": "secret_key",
    "SessionToken": "session_token",
    "Expiration": "expires_at",
    **{name: name for name in (*SECRET_FIELDS, "expires_at")},
}


class Storage(BaseModel):
    """Where tables are kept and how to get at them.

    A repr, a log line or a plain dump never shows the secrets; only the methods below hand them
    out, to the engine that needs them.

    Attributes:
        kind: `local` for folders on this machine, `s3` for an S3 store.
        endpoint: Address of the S3 store; None for AWS.
        region: Region of the bucket.
        path_style: Whether the bucket is part of the path and not of the host name.
        allow_http: Whether an endpoint without TLS is accepted.
        access_key: Access key id.
        secret_key: Secret key.
        session_token: Token of temporary credentials.
        refresh_command: Command that prints new credentials as JSON.
        expires_at: When the credentials at hand end, or None when they don't or nobody knows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "s3"] = "local"
    endpoint: str | None = None
    region: str = "us-east-1"
    path_style: bool = True
    allow_http: bool = False
    access_key: SecretStr | None = None
    secret_key: SecretStr | None = None
    session_token: SecretStr | None = None
    refresh_command: tuple[str, ...] = ()
    expires_at: datetime | None = None

    @model_validator(mode="after")
    def _complete(self) -> Storage:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together")
        plain = (self.endpoint or "").startswith("http://")
        if plain and not self.allow_http:
            raise ValueError(f"endpoint = {self.endpoint!r} has no TLS, and allow_http = false")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f'endpoint = {self.endpoint!r} must start with "https://" or "http://"'
            )
        return self

    def spark_conf(self) -> dict[str, str]:
        """Spark settings for `s3a://` (Hadoop's S3A connector); empty for local storage.

        Pass them to the session at run time, not on a command line, where `ps` shows them.
        """
        if self.kind == "local":
            return {}
        conf = {
            "endpoint.region": self.region,
            "path.style.access": str(self.path_style).lower(),
            "connection.ssl.enabled": str(not self._plain_http()).lower(),
        }
        if self.endpoint:
            conf["endpoint"] = self.endpoint
        conf |= self._revealed(("access.key", "secret.key", "session.token"))
        if self.access_key:
            kind = (
                "TemporaryAWSCredentialsProvider"
                if self.session_token
                else "SimpleAWSCredentialsProvider"
            )
            conf["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{kind}"
        scheme = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in conf.items()} | scheme

    def delta_options(self) -> dict[str, str]:
        """`storage_options` for deltalake; empty for local storage.

        A commit is a conditional put (`If-None-Match: *`), so that two writers can't both have it.
        """
        if self.kind == "local":
            return {}
        options = {
            "AWS_REGION": self.region,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.path_style).lower(),
            "AWS_CONDITIONAL_PUT": "etag",
        }
        if self.endpoint:
            options["AWS_ENDPOINT_URL"] = self.endpoint
        if self.allow_http:
            options["AWS_ALLOW_HTTP"] = "true"
        return options | self._revealed(
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        )

    def filesystem(self) -> Any:
        """A native `pyarrow.fs` file system: local, or S3 with the bucket first in each path."""
        from pyarrow import fs

        if self.kind == "local":
            return fs.LocalFileSystem()
        host = (self.endpoint or "").split("://")[-1].rstrip("/")
        return fs.S3FileSystem(
            region=self.region,
            endpoint_override=host or None,
            scheme="http" if self._plain_http() else "https",
            force_virtual_addressing=not self.path_style,
            allow_delayed_open=True,  # a small file is one request, not three
            connect_timeout=_CONNECT_TIMEOUT_S,
            request_timeout=_ANSWER_TIMEOUT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
            **self._revealed(("access_key", "secret_key", "session_token")),
        )

    def needs_refresh(self, now: datetime | None = None) -> bool:
        """Whether a refresh command is there and the credentials are missing or about to end."""
        if not self.refresh_command:
            return False
        if self.access_key is None:
            return True
        now = now or datetime.now(UTC)
        return self.expires_at is not None and now >= self.expires_at - REFRESH_MARGIN

    def fresh(self) -> Storage:
        """This storage with credentials that are valid now.

        Runs `refresh_command` when `needs_refresh` says so. It prints one JSON object with
        `access_key`, `secret_key` and perhaps `session_token` and `expires_at` (ISO 8601), or with
        the names that `aws configure export-credentials` uses.

        Raises:
            StorageRefreshError: The command fails, takes too long, or prints something else.
        """
        if not self.refresh_command:
            return self
        with _RENEWING:
            known = _RENEWED.get(self, self)
            if known.needs_refresh():
                known = _RENEWED[self] = known._refreshed()  # noqa: SLF001 - a Storage, too
            return known

    def renewed(self, refused: Storage) -> Storage:
        """This storage with other credentials than those that a store has just refused.

        Raises:
            StorageRefreshError: There is no command, or it fails; see `fresh`.
        """
        with _RENEWING:
            known = _RENEWED.get(self, self)
            if known == refused:  # else another thread was first
                known = _RENEWED[self] = known._refreshed()  # noqa: SLF001
            return known

    def to_secret_json(self) -> str:
        """All of it, secrets too, for a file that only its owner may read."""
        return json.dumps(self.model_dump(mode="json") | self._revealed(SECRET_FIELDS))

    @classmethod
    def from_secret_json(cls, text: str) -> Storage:
        """Back from `to_secret_json`."""
        return cls.model_validate_json(text)

    def _plain_http(self) -> bool:
        return (self.endpoint or "").startswith("http://")

    def _revealed(self, names: tuple[str, ...]) -> dict[str, str]:
        """The secrets that are set, under the names that an engine has for them."""
        secrets = (self.access_key, self.secret_key, self.session_token)
        return {
            name: secret.get_secret_value()
            for name, secret in zip(names, secrets, strict=True)
            if secret is not None
        }

    def _refreshed(self) -> Storage:
        try:
            done = subprocess.run(
                self.refresh_command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=REFRESH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._refresh_error(f"it took more than {REFRESH_TIMEOUT_S} s") from error
        except OSError as error:
            raise self._refresh_error(error.strerror or "it can't be started") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise self._refresh_error(f"exit code {done.returncode}: {last}")
        # Its output is never part of an error: it may hold half a secret.
        try:
            printed = json.loads(done.stdout)
            found = {_PRINTED_KEYS[k]: v for k, v in printed.items() if v and k in _PRINTED_KEYS}
        except (ValueError, AttributeError):
            raise self._refresh_error("it did not print one JSON object") from None
        if not {"access_key", "secret_key"} <= found.keys():
            raise self._refresh_error("access_key or secret_key is missing in what it printed")
        blank = dict.fromkeys((*SECRET_FIELDS, "expires_at"))
        try:
            return Storage.model_validate({**dict(self), **blank, **found})
        except ValueError:
            raise self._refresh_error("it printed values of the wrong type") from None

    def _refresh_error(self, reason: str) -> StorageRefreshError:
        return StorageRefreshError(command=shlex.join(self.refresh_command), reason=reason)


# What `refresh_command` printed last in this process, by the settings that it was run for: a read
# or a write asks for its storage many times.
_RENEWED: dict[Storage, Storage] = {}
_RENEWING = threading.Lock()
