"""A process tree below a supervisor, seen from the flow's process: start, measure, end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.engines.process_tree import MARKER, Process, end_tree, read_process, read_processes
from headrace.engines.spec import ALIVE_FILE, EXIT_FILE, LOG_FILE, SECRETS_FILE, SPEC_FILE
from headrace.engines.usage import Usage, UsageMeter


@dataclass(kw_only=True)
class Supervised:
    """One process tree and the folder that belongs to it.

    Attributes:
        folder: Folder with the spec; log and result come there.
        root: Working folder.
        scratch: Temporary folder, removed at the end.
        grace_s: How long the processes may take to end by themselves.
        marker: What marks the processes in their environment.
    """

    folder: Path
    root: Path
    scratch: Path | None
    grace_s: float
    marker: str
    _process: subprocess.Popen[bytes] | None = None
    _meter: UsageMeter = field(default_factory=lambda: UsageMeter(0))

    def start(self, module: str, environment: Mapping[str, str]) -> None:
        """Start `python -m MODULE SPEC` in a session of its own, printing into the log."""
        # Appending to a file can't block and can't break, whether somebody reads it or not.
        with (self.folder / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(self.folder / SPEC_FILE)],
                cwd=self.root,
                env={**os.environ, **environment, MARKER: self.marker},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._meter = UsageMeter(self._process.pid)

    def wait(self, timeout_s: float) -> bool:
        """Whether the tree ends by itself within this time; its process id stays taken."""
        if self._process is None:
            return True
        handle = os.pidfd_open(self._process.pid)
        try:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            return bool(poller.poll(timeout_s * 1000))
        finally:
            os.close(handle)

    def sample(self) -> Usage:
        """What the tree uses now; this also tells its supervisor that the flow is alive."""
        usage = self._meter.sample()
        alive = self.folder / ALIVE_FILE
        with contextlib.suppress(OSError):
            os.utime(alive)
        # For `end_leftovers`, should this process and the supervisor be killed. A disk may be full.
        with contextlib.suppress(OSError):
            alive.write_text(json.dumps([(seen.pid, seen.started) for seen in self._meter.seen]))
        return usage

    @property
    def largest(self) -> str:
        """The largest process of the tree, in words."""
        return self._meter.largest

    def end(self, *, grace_s: float | None = None) -> tuple[int, list[Process]]:
        """End what is left of the tree, and remove its scratch folder.

        Args:
            grace_s: Another grace than the usual one.

        Returns:
            The supervisor's exit code, and the processes that could not be ended.
        """
        process = self._process
        if process is None:
            self._clean()
            return 1, []
        # The supervisor is not collected before the tree is gone: until then nobody else can
        # have its process id, and it adopts what loses its parent.
        grace_s = self.grace_s if grace_s is None else grace_s
        roots = [process.pid, *(seen.pid for seen in self._meter.seen if _is_same(seen))]
        left = end_tree(
            roots,
            marker=self.marker,
            grace_s=grace_s,
            first=_children(process.pid),
            keep=[process.pid],
        )
        # With nothing left to watch the supervisor ends by itself, unless it is stopped.
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._clean()
        return code, left

    def finish(self) -> Usage:
        """The final figures, once the tree has ended."""
        return self._meter.finish(self.folder / EXIT_FILE)

    def _clean(self) -> None:
        (self.folder / SECRETS_FILE).unlink(missing_ok=True)
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def end_leftovers(folder: Path, *, grace_s: float = 2.0) -> int:
    """End what is left of an attempt whose flow and supervisor were both killed.

    A repair calls this before it runs the task again. It does nothing when nothing is left, and
    must run on the attempt's machine.

    Args:
        folder: The attempt's folder.
        grace_s: How long the processes may take to end by themselves.

    Returns:
        How many processes are still there; as a rule 0.
    """
    marker = (_read_json(folder / SPEC_FILE) or {}).get("marker", "")
    seen = _read_json(folder / ALIVE_FILE) or []
    roots = [pid for pid, started in seen if (now := read_process(pid)) and now.started == started]
    return len(end_tree(roots, marker=marker, grace_s=grace_s)) if marker or roots else 0


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _children(pid: int) -> list[int]:
    return [process.pid for process in read_processes().values() if process.parent == pid]


def _is_same(seen: Process) -> bool:
    now = read_process(seen.pid)
    return bool(now and now.started == seen.started)
