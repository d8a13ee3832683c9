"""The small process above each attempt: it adopts orphans, and outlives the flow to clean up.

Only the standard library is imported, and the task's process is forked from it before anything
else is loaded: watching costs a few MiB and almost no time.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from headrace.engines.process_tree import MARKER, end_tree

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_TICK_S: Final = 0.5
_WATCHED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class _Watch:
    """What the supervisor knows.

    Attributes:
        task_pid: The task's process.
        status: How that ended, as `os.wait4` tells; None while it runs.
        peak_kib: The most memory that it had.
        ended_by: Why the supervisor ended it: `flow`, `lease` or `signal`; empty otherwise.
    """

    task_pid: int
    status: int | None = None
    peak_kib: int = 0
    ended_by: str = ""

    def collect(self) -> None:
        """Collect all that have ended, adopted orphans too."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.task_pid:
                self.status, self.peak_kib = status, used.ru_maxrss


def fork_task(spec_path: Path) -> None:
    """Return in a new process that shall run the task; this one watches it and never returns.

    The watcher ends everything that the task started when the task ends, when the flow's process
    is gone, when that stands still for longer than its lease, and on TERM.
    """
    spec: dict[str, Any] = json.loads(spec_path.read_bytes())
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    watcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        return
    _supervise(spec, spec_path.parent, _Watch(pid))


def _supervise(spec: dict[str, Any], folder: Path, watch: _Watch) -> NoReturn:
    beat = _Beat(folder / "alive", spec["lease_s"])
    while watch.status is None and not watch.ended_by:
        received = signal.sigtimedwait(_WATCHED, _TICK_S)
        watch.collect()
        if os.getppid() != spec["flow_pid"]:
            watch.ended_by = "flow"
        elif beat.is_late():
            watch.ended_by = "lease"
        elif received and received.si_signo != signal.SIGCHLD:
            watch.ended_by = "signal"
    marker = os.environ.get(MARKER, "")
    # What a task leaves running after a success gets no grace: its result is there.
    grace_s = spec["grace_s"] if watch.status is None else min(1.0, spec["grace_s"])
    first = [watch.task_pid] if watch.status is None else []
    end_tree([os.getpid()], marker=marker, grace_s=grace_s, first=first, collect=watch.collect)
    _tell(folder, watch)
    if spec["scratch"]:
        _remove(spec["scratch"])
    os._exit(_exit_code(watch))


class _Beat:
    """The flow's process touches a file again and again; a stopped one doesn't."""

    def __init__(self, path: Path, lease_s: float | None) -> None:
        self.path = path
        self.lease_s = lease_s
        self.seen = 0
        self.at = time.monotonic()

    def is_late(self) -> bool:
        if self.lease_s is None:
            return False
        try:
            touched = self.path.stat().st_mtime_ns
        except OSError:
            touched = self.seen
        # Monotonic time stands still while the machine sleeps, and nobody can set it back.
        if touched != self.seen:
            self.seen, self.at = touched, time.monotonic()
        return time.monotonic() - self.at > self.lease_s


def _tell(folder: Path, watch: _Watch) -> None:
    used = os.times()
    exited = {
        "status": watch.status,
        "ended_by": watch.ended_by,
        "peak_kib": watch.peak_kib,
        "cpu_s": used.user + used.system + used.children_user + used.children_system,
        **_bytes(),
    }
    # The disk may be full and the folder gone: the exit code still tells.
    try:
        draft = folder / "exit.json.part"
        draft.write_text(json.dumps(exited))
        draft.replace(folder / "exit.json")
    except OSError:
        pass


def _bytes() -> dict[str, int]:
    """What all that have ended read and wrote: Linux adds up collected children too."""
    try:
        lines = Path("/proc/self/io").read_text().split()
        told = dict(zip(lines[::2], lines[1::2], strict=True))
        return {"read_bytes": int(told["rchar:"]), "written_bytes": int(told["wchar:"])}
    except (OSError, KeyError, ValueError):
        return {}


def _remove(scratch: str) -> None:
    import shutil

    shutil.rmtree(scratch, ignore_errors=True)


def _exit_code(watch: _Watch) -> int:
    if watch.status is None or watch.ended_by:
        return 128 + signal.SIGTERM
    code = os.waitstatus_to_exitcode(watch.status)
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
