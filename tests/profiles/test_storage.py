"""The storage options, tried on the real libraries against a server that notes what it is asked."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.exceptions import StorageRefreshError
from headrace.profiles.storage import Storage

SECRETS = {"access_key": "AKIAEXAMPLE", "secret_key": "hunter2", "session_token": "t0ken"}
EMPTY_LIST = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix/>
<KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"""


class Recorder(BaseHTTPRequestHandler):
    """An S3 store that is empty, takes everything, and notes each request."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.server.seen.append(
            (self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
        )
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        is_list = "list-type" in self.path or "?" in self.path
        self._answer(200 if is_list else 404, EMPTY_LIST if is_list else b"")

    def do_HEAD(self) -> None:
        self._answer(404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, ETag='"1"')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def storage(server, monkeypatch) -> Storage:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "from-outside")
    endpoint = f"http://127.0.0.1:{server.server_port}"
    return Storage(kind="s3", endpoint=endpoint, region="eu-north-1", allow_http=True, **SECRETS)


def _check_signature(headers: dict[str, str]) -> None:
    assert "Credential=AKIAEXAMPLE/" in headers["authorization"]
    assert "/eu-north-1/s3/aws4_request" in headers["authorization"]
    assert headers["x-amz-security-token"] == "t0ken"


def test_delta_rs_signs_with_these_keys_and_commits_with_a_conditional_put(server, storage):
    import pyarrow as pa
    from deltalake import write_deltalake
    from deltalake.exceptions import TableNotFoundError

    data = pa.table({"id": [1, 2]})
    # This server forgets what it takes, so that reading the new version back fails.
    with pytest.raises(TableNotFoundError):
        write_deltalake("s3://bucket/lake/t", data, storage_options=storage.delta_options())
    puts = {path: headers for method, path, headers in server.seen if method == "PUT"}
    commit = puts["/bucket/lake/t/_delta_log/00000000000000000000.json"]
    _check_signature(commit)
    assert commit["if-none-match"] == "*"


def test_pyarrow_signs_with_these_keys_and_uses_the_path_style(server, storage):
    storage.filesystem().get_file_info("bucket/lake/x")
    method, path, headers = server.seen[0]
    assert (method, path) == ("HEAD", "/bucket/lake/x")
    _check_signature(headers)


def test_local_storage_needs_no_option_at_all(tmp_path):
    storage = Storage()
    assert storage.spark_conf() == {}
    assert storage.delta_options() == {}
    (tmp_path / "x").touch()
    assert storage.filesystem().get_file_info(str(tmp_path / "x")).is_file


def test_s3a_gets_the_names_that_hadoop_documents():
    storage = Storage(kind="s3", endpoint="http://s3:7070", allow_http=True, **SECRETS)
    prefix = "spark.hadoop.fs.s3a."
    assert storage.spark_conf() == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        prefix + "endpoint": "http://s3:7070",
        prefix + "endpoint.region": "us-east-1",
        prefix + "path.style.access": "true",
        prefix + "connection.ssl.enabled": "false",
        prefix + "access.key": "AKIAEXAMPLE",
        prefix + "secret.key": "hunter2",
        prefix + "session.token": "t0ken",
        prefix
        + "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    }


def test_s3a_without_keys_keeps_its_own_chain_of_credentials():
    conf = Storage(kind="s3", path_style=False).spark_conf()
    assert not any("key" in name or "provider" in name for name in conf)
    assert conf["spark.hadoop.fs.s3a.path.style.access"] == "false"
    assert conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
    lasting = Storage(kind="s3", access_key="a", secret_key="b").spark_conf()
    assert lasting["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(
        "SimpleAWSCredentialsProvider"
    )


def test_secrets_show_nowhere_but_in_the_secret_file():
    storage = Storage(kind="s3", **SECRETS)
    shown = f"{storage!r} {storage} {storage.model_dump()} {storage.model_dump_json()}"
    assert not any(secret in shown for secret in SECRETS.values())
    again = Storage.from_secret_json(storage.to_secret_json())
    assert again == storage
    assert again.delta_options() == storage.delta_options()


def _command(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def _printing(data: object) -> tuple[str, ...]:
    return _command(f"print({json.dumps(data)!r})")


@pytest.mark.parametrize(
    "printed",
    [
        {"access_key": "new", "secret_key": "key", "session_token": "tok", "expires_at": "2031-01-02T03:04:05Z"},
        {"Version": 1, "AccessKeyId": "new", "SecretAccessKey": "key", "SessionToken": "tok", "Expiration": "2031-01-02T03:04:05+00:00"},
    ],
)  # fmt: skip
def test_a_refresh_command_gives_new_credentials_with_their_end(printed):
    old = Storage(kind="s3", region="eu-north-1", refresh_command=_printing(printed))
    fresh = old.fresh()
    assert fresh.delta_options()["AWS_ACCESS_KEY_ID"] == "new"
    assert fresh.delta_options()["AWS_SECRET_ACCESS_KEY"] == "key"
    assert fresh.delta_options()["AWS_SESSION_TOKEN"] == "tok"
    assert fresh.region == "eu-north-1"
    assert fresh.expires_at == datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert Storage.from_secret_json(fresh.to_secret_json()) == fresh


def test_credentials_are_renewed_only_when_they_are_about_to_end():
    now = datetime.now(UTC)
    command = _printing({"access_key": "new", "secret_key": "key"})
    lasting = Storage(kind="s3", access_key="a", secret_key="b", refresh_command=command)
    assert lasting.fresh() is lasting
    ending = lasting.model_copy(update={"expires_at": now + timedelta(minutes=1)})
    later = lasting.model_copy(update={"expires_at": now + timedelta(hours=1)})
    assert ending.needs_refresh(now)
    assert not later.needs_refresh(now)
    renewed = ending.fresh()
    assert renewed.delta_options()["AWS_ACCESS_KEY_ID"] == "new"
    assert renewed.expires_at is None
    assert not Storage(kind="s3").needs_refresh()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (_command("import sys; sys.exit('no login')"), "exit code 1: no login"),
        (("no-such-command",), "No such file or directory"),
        (_command("print('hunter2')"), "it did not print one JSON object"),
        (_printing(["hunter2"]), "it did not print one JSON object"),
        (_printing({"access_key": "hunter2"}), "access_key or secret_key is missing in what it printed"),
        (_printing({"access_key": "a", "secret_key": ["hunter2"]}), "it printed values of the wrong type"),
    ],
)  # fmt: skip
def test_a_refresh_command_that_fails_says_why_and_never_what_it_printed(command, reason):
    with pytest.raises(StorageRefreshError) as caught:
        Storage(kind="s3", refresh_command=command).fresh()
    assert caught.value.reason == reason
    assert caught.value.__cause__ is None or "hunter2" not in repr(caught.value.__cause__)
