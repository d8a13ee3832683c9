"""The user's cache folder: what is fetched or made once and used by every project."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder `headrace/NAME` in the user's cache (`XDG_CACHE_HOME` or `~/.cache`)."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "headrace" / name


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock `path`, which the system gives back if this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
