"""A commit on S3: created once, asked for again when the answer is lost, signed as AWS wants it."""

from __future__ import annotations

import datetime as dt
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.delta.conditional_put import put_if_absent, signed
from headrace.exceptions import UnsupportedWriteError
from headrace.profiles.storage import Storage

KEYS = {
    "access_key": "AKIAIOSFODNN7EXAMPLE",
    "secret_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_signature_is_the_one_of_aws_s_own_example():
    # docs.aws.amazon.com, "Signature Calculations for the Authorization Header", GET Object.
    headers = {
        "Host": "examplebucket.s3.amazonaws.com",
        "Range": "bytes=0-9",
        "X-Amz-Content-Sha256": EMPTY,
    }
    now = dt.datetime(2013, 5, 24, tzinfo=dt.UTC)
    found = signed(Storage(kind="s3", **KEYS), "GET", "/test.txt", headers, now)
    assert found["Authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


class Store(BaseHTTPRequestHandler):
    """Keeps what is put; its troubles are answered first, one each."""

    objects: dict[str, bytes]
    troubles: list[str]

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "500":
            self.answer(500, b"<Code>SlowDown</Code>")
            return
        if trouble == "403":
            self.answer(403, b"<Code>AccessDenied</Code>")
            return
        taken = self.path in self.objects and self.headers["If-None-Match"] == "*"
        if not taken:
            self.objects[self.path] = body
        if trouble == "lost":
            self.connection.close()
            return
        self.answer(412 if taken else 200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def store():
    kind = type("ThisStore", (Store,), {"objects": {}, "troubles": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    yield kind, Storage(kind="s3", endpoint=endpoint, allow_http=True, **KEYS)
    server.shutdown()


def test_an_object_is_created_once(store):
    kind, storage = store
    assert put_if_absent(storage, "bucket/a b/+%20.json", b"one") is True
    assert put_if_absent(storage, "bucket/a b/+%20.json", b"two") is False
    assert kind.objects == {"/bucket/a%20b/%2B%2520.json": b"one"}


def test_an_error_of_the_server_is_asked_again_and_a_refusal_is_not(store):
    kind, storage = store
    kind.troubles += ["500", "500"]
    assert put_if_absent(storage, "bucket/key", b"one") is True
    kind.troubles += ["403", "never asked"]
    with pytest.raises(OSError, match="AccessDenied"):
        put_if_absent(storage, "bucket/other", b"one")
    assert kind.troubles == ["never asked"]


def test_a_lost_answer_is_asked_again_and_finds_the_object(store):
    kind, storage = store
    kind.troubles += ["lost"]
    assert put_if_absent(storage, "bucket/key", b"one") is False  # the caller knows its own commit
    assert kind.objects == {"/bucket/key": b"one"}


def test_no_error_shows_a_secret_and_missing_credentials_are_named(store):
    kind, storage = store
    kind.troubles += ["403"]
    with pytest.raises(OSError, match="AccessDenied") as caught:
        put_if_absent(storage, "bucket/key", b"")
    assert KEYS["secret_key"] not in str(caught.value)
    with pytest.raises(UnsupportedWriteError, match=r"\[storage\]"):
        put_if_absent(Storage(kind="s3"), "bucket/t/_delta_log/0.json", b"")
