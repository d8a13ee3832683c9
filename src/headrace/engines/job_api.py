"""Ray's job server over HTTP. It needs no part of Ray here, which `ray[default]` would bring."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.exceptions import EngineStartError

ENDED: Final = ("SUCCEEDED", "FAILED", "STOPPED")
_TIMEOUT_S: Final = 30


@dataclass(frozen=True)
class JobApi:
    """The job server of one Ray cluster.

    Args:
        address: `http://HOST:8265`.
        token: The cluster's token, if it asks for one.
        patience_s: How long to go on asking while it does not answer.
    """

    address: str
    token: str = field(default="", repr=False)
    patience_s: float = 60.0

    def version(self) -> str:
        """Ray's version there."""
        return str(self._json("GET", "/api/version")["ray_version"])

    def upload(self, name: str, content: bytes) -> str:
        """Put an archive of code there, unless it is there already; its address for jobs."""
        path = f"/api/packages/gcs/{name}"
        if self._request("GET", path, missing=True) is None:
            self._request("PUT", path, content)
        return f"gcs://{name}"

    def submit(self, job: dict[str, Any]) -> None:
        """Start a job; one that a lost answer has started already is not started again."""
        try:
            self._json("POST", "/api/jobs/", job)
        except EngineStartError as error:
            if "already exists" not in error.reason:
                raise

    def info(self, job: str) -> dict[str, Any] | None:
        """What is known of a job; None when there is none of this id."""
        found = self._request("GET", f"/api/jobs/{job}", missing=True)
        return None if found is None else dict(json.loads(found))

    def log(self, job: str) -> str:
        """All that a job has printed so far."""
        found = self._request("GET", f"/api/jobs/{job}/logs", missing=True)
        return "" if found is None else str(json.loads(found).get("logs") or "")

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the cluster remembers."""
        return list(self._json("GET", "/api/jobs/"))

    def stop(self, job: str) -> None:
        """Ask a job to end; nothing happens when it has."""
        self._request("POST", f"/api/jobs/{job}/stop", missing=True)

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        return json.loads(self._request(method, path, content) or b"null")

    def _request(
        self, method: str, path: str, body: bytes | None = None, *, missing: bool = False
    ) -> bytes | None:
        """The answer; None for "not found", where that may be."""
        request = urllib.request.Request(  # noqa: S310 - the profile's own http address
            self.address.rstrip("/") + path, data=body, method=method
        )
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        began = time.monotonic()
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                if error.code == http.client.NOT_FOUND and missing:
                    return None
                reason = _reason(error)
                if error.code < http.client.INTERNAL_SERVER_ERROR or "already exists" in reason:
                    raise self._error(reason) from error
            except (OSError, http.client.HTTPException) as error:
                reason = f"it does not answer ({getattr(error, 'reason', error)})"
            if time.monotonic() - began > self.patience_s:
                raise self._error(reason)
            time.sleep(1)

    def _error(self, reason: str) -> EngineStartError:
        return EngineStartError(engine=f"a Ray job at {self.address}", reason=reason, tail="")


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace").strip()
    last = (text.splitlines() or [""])[-1][:500]
    if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return f"it refuses the token ({last}); set `token` of the profile"
    return f"HTTP {error.code}: {last}"
