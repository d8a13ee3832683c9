"""One set of storage credentials, translated for every engine."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, SecretStr

SECRET_FIELDS: Final = ("access_key", "secret_key", "session_token")


class Storage(BaseModel):
    """Where tables are kept and how to get at them.

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
