"""A small HTTP proxy before a real S3 store, which makes the troubles that a network has."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from headrace.delta.conditional_put import signed
from headrace.profiles.storage import Storage

EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)

_NOT_PASSED_ON = ("transfer-encoding", "content-length", "expect")


@dataclass
class Trouble:
    """What happens to the requests that fit.

    Attributes:
        kind: `503` and `500` are answered without asking the store; `reset` closes without asking
            it; `lost` asks it and closes without an answer; `half` sends half of the answer.
        method: HTTP methods, a regular expression.
        path: What is searched in the decoded path, a regular expression.
        times: How many requests are left.
    """

    kind: str
    method: str
    path: str
    times: int


@dataclass
class Proxy:
    """A running proxy.

    Attributes:
        address: Its address, for `[storage]`.
        seen: (method, decoded path) of each request.
        troubles: What is still to happen.
        tokens: Session tokens that are good; None for no check. The store knows no tokens, so a good
            request goes on without it, signed with `keys`.
        keys: The store's own credentials.
    """

    address: str
    upstream: str
    seen: list[tuple[str, str]] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    tokens: set[str] | None = None
    keys: Storage | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make(self, kind: str, method: str = ".*", path: str = "", times: int = 1) -> Trouble:
        """Have a trouble happen to the next requests that fit."""
        trouble = Trouble(kind, method, path, times)
        self.troubles.append(trouble)
        return trouble

    def count(self, method: str, path: str) -> int:
        """How many requests of a method were seen whose path holds a text."""
        return sum(m == method and path in p for m, p in self.seen)

    def take(self, method: str, path: str) -> str:
        """Note a request, and say what happens to it."""
        with self._lock:
            self.seen.append((method, path))
            for trouble in self.troubles:
                fits = re.fullmatch(trouble.method, method) and re.search(trouble.path, path)
                if trouble.times and fits:
                    trouble.times -= 1
                    return trouble.kind
        return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def _serve(self) -> None:
        body = self._body()
        kind = self.proxy.take(self.command, unquote(self.path))
        tokens = self.proxy.tokens
        if tokens is not None and self.headers.get("x-amz-security-token") not in tokens:
            self._answer(400, {"Content-Type": "application/xml"}, EXPIRED)
        elif kind in ("500", "503"):
            self._answer(int(kind), {"Content-Type": "application/xml"}, SLOW_DOWN)
        elif kind == "reset":
            self._close()
        else:
            self._forward(body, kind)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names of http.server

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forward(self, body: bytes, kind: str) -> None:
        store = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}
        if self.proxy.tokens is not None:
            headers = self._signed_anew(headers)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                store.putheader(name, value)
            if body or self.command in ("PUT", "POST"):
                store.putheader("Content-Length", str(len(body)))
            store.endheaders(body or None)
            answer = store.getresponse()
            content = answer.read()
            kept = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() not in ("transfer-encoding", "connection", "date", "server")
            }
        finally:
            store.close()
        if kind == "lost":
            self._close()
            return
        self._answer(answer.status, kept, content, half=kind == "half")

    def _signed_anew(self, headers: dict[str, str]) -> dict[str, str]:
        assert self.proxy.keys is not None
        dropped = ("authorization", "x-amz-security-token", "x-amz-date")
        kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
        signing = {k: v for k, v in kept.items() if k.lower().startswith(("x-amz", "host"))}
        return kept | signed(self.proxy.keys, self.command, self.path, signing, datetime.now(UTC))

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, *, half: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            self._close()

    def _close(self) -> None:
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def open_proxy(storage: Storage) -> Iterator[Proxy]:
    """A proxy before a store."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    proxy = Proxy(
        f"http://127.0.0.1:{server.server_port}", urlsplit(storage.endpoint).netloc, keys=storage
    )
    handler.proxy = proxy
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
