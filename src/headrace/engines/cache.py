"""Folders outside the project: the user's cache, locks, and short temporary ones."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# A socket's path may have 107 bytes, and Ray appends up to 66:
# r/session_YYYY-MM-DD_HH-MM-SS_ffffff_PID/sockets/plasma_store.
_LONGEST_PARENT: Final = 107 - 66 - len("/hr-xxxxxxxx/")


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


def short_folder() -> Path:
    """Make a temporary folder, readable by the owner only, whose path is short enough for Ray."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        if len(os.fsencode(parent)) <= _LONGEST_PARENT and os.access(parent, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="hr-", dir=parent))
    return Path(tempfile.mkdtemp(prefix="hr-"))
