"""Follow an attempt's log file, with bounds: a task that prints 100 MB stops nobody."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_CHUNK: Final = 64 * 1024
_LONGEST_LINE: Final = 4 * 1024
_TICK_S: Final = 0.1

# What engines print at each start and nobody can act on. It stays in the file.
_NOISE: Final = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "WARNING: A terminally deprecated method in sun.misc.Unsafe",
    "WARNING: sun.misc.Unsafe::",
    "WARNING: Please consider reporting this to the maintainers",
)


class LogTail:
    """Call `on_line` for each line of a growing file, in a thread of its own.

    Args:
        path: The file; it may appear later.
        on_line: Called with each line, without its end. Its errors are ignored.
        most_lines: After so many lines it says where the rest is, and stops.
        most_bytes: The same for bytes.
    """

    def __init__(
        self,
        path: Path,
        on_line: Callable[[str], object],
        *,
        most_lines: int = 10_000,
        most_bytes: int = 2 * 2**20,
    ) -> None:
        self._path = path
        self._on_line = on_line
        self._lines_left = most_lines
        self._bytes_left = most_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="headrace-log", daemon=True)
        self._thread.start()

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Pass on what is there, and stop; a receiver that hangs is left behind."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _follow(self) -> None:
        offset, rest = 0, b""
        while self._lines_left > 0 and self._bytes_left > 0:
            # First look whether it has ended, then read: nothing written before is missed.
            ended = self._ended.is_set()
            chunk = _read(self._path, offset)
            offset += len(chunk)
            *complete, rest = (rest + chunk).split(b"\n")
            for line in complete:
                self._pass_on(line)
            if len(rest) > _LONGEST_LINE:
                self._pass_on(rest)
                rest = b""
            if not chunk:
                if ended:
                    break
                self._ended.wait(_TICK_S)
        if rest and self._lines_left > 0:
            self._pass_on(rest)

    def _pass_on(self, line: bytes) -> None:
        if self._lines_left <= 0 or self._bytes_left <= 0:
            return
        # A progress bar rewrites its line; what it said last counts.
        text = line.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE].decode(errors="replace")
        if text.startswith(_NOISE):
            return
        self._lines_left -= 1
        self._bytes_left -= len(line)
        self._call(text)
        if self._lines_left <= 0 or self._bytes_left <= 0:
            self._call(f"... this task prints a lot; the rest is in {self._path}")

    def _call(self, text: str) -> None:
        # A lost log server must not stop the task, nor the lines that come after.
        with contextlib.suppress(Exception):
            self._on_line(text)


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as handle:
            handle.seek(offset)
            return handle.read(_CHUNK)
    except OSError:
        return b""


def log_end(path: Path, *, most_lines: int = 20, most_bytes: int = 8 * 1024) -> str:
    """The last lines of a log, or nothing where it can't be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - most_bytes))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [line for line in text.strip().splitlines() if not line.startswith(_NOISE)]
    return "\n".join(kept[-most_lines:])
