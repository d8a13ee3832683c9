"""A real S3 store for tests: versitygw over a folder, or the one that HEADRACE_TEST_S3 names."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.profiles.storage import Storage

SCRIPT = Path(__file__).parents[2] / "infra" / "s3-for-tests"
START_LIMIT_S = 120


@dataclass(frozen=True)
class Store:
    """A store with an empty bucket.

    Attributes:
        endpoint: Its address.
        access_key: Access key id.
        secret_key: Secret key.
        bucket: A bucket that is there.
    """

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str = "lake"

    def storage(self, **changes: Any) -> Storage:
        """The `[storage]` section of a profile that uses it."""
        values = {
            "kind": "s3",
            "endpoint": self.endpoint,
            "allow_http": True,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }
        return Storage(**(values | changes))


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Start a store, or use the named one; skips the test where none can be had.

    `HEADRACE_TEST_S3` is JSON: `{"endpoint": ..., "access_key": ..., "secret_key": ...}`.
    """
    named = os.environ.get("HEADRACE_TEST_S3")
    if named:
        yield with_bucket(Store(**json.loads(named)))
        return
    found = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    port = free_port()
    store = Store(f"http://127.0.0.1:{port}", secrets.token_hex(10), secrets.token_urlsafe(30))
    for name in ("objects", "sidecar"):
        (folder / name).mkdir(parents=True)
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [
                found.stdout.strip(),
                *("--port", f"127.0.0.1:{port}", "--region", "us-east-1", "--quiet"),
                *("posix", "--sidecar", folder / "sidecar", folder / "objects"),
            ],
            env={
                "ROOT_ACCESS_KEY": store.access_key,
                "ROOT_SECRET_KEY": store.secret_key,
                "PATH": os.environ.get("PATH", ""),
                "HOME": str(folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(port, process, folder / "log.txt")
            yield with_bucket(store)
        finally:
            process.terminate()
            process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the S3 store did not start: {log.read_text(errors='replace')[-2000:]}")


def with_bucket(store: Store) -> Store:
    from pyarrow import fs

    filesystem = store.storage().filesystem()
    host = store.endpoint.partition("://")[2]
    maker = fs.S3FileSystem(
        access_key=store.access_key,
        secret_key=store.secret_key,
        endpoint_override=host,
        scheme=store.endpoint.partition("://")[0],
        allow_bucket_creation=True,
    )
    if filesystem.get_file_info(store.bucket).type == fs.FileType.NotFound:
        maker.create_dir(store.bucket)
    return store
