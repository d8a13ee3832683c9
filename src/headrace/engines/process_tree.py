"""Find all processes that an attempt started, and end them.

Only the standard library is imported: the supervisor of each attempt runs this code.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MARKER: Final = "HEADRACE_ATTEMPT"
_TICK_S: Final = 0.05


@dataclass(frozen=True)
class Process:
    """One line of the process table.

    Attributes:
        pid: Process id.
        parent: Process id of its parent.
        session: Session id.
        started: Start time in clock ticks since boot; with `pid` it names one process for ever.
        state: One letter, `Z` for one that has ended and was not yet collected.
        cpu_ticks: CPU time used, with that of its collected children.
        rss_pages: Resident memory.
        name: Short name.
    """

    pid: int
    parent: int
    session: int
    started: int
    state: str
    cpu_ticks: int
    rss_pages: int
    name: str


def read_process(pid: int) -> Process | None:
    """The process `pid`, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:  # noqa: PTH123  read twice a second
            text = handle.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, so look for the last one.
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    field = rest.split()
    return Process(
        pid=pid,
        state=field[0].decode(),
        parent=int(field[1]),
        session=int(field[3]),
        cpu_ticks=sum(int(ticks) for ticks in field[11:15]),
        started=int(field[19]),
        rss_pages=int(field[21]),
        name=name.decode(errors="replace"),
    )


def read_processes() -> dict[int, Process]:
    """All processes of this machine by id."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process}


def members(
    roots: Iterable[int], *, marker: str = "", table: dict[int, Process] | None = None
) -> list[Process]:
    """All living processes that belong to an attempt.

    These are the roots, their descendants, all in a session that a descendant leads, and all
    whose environment carries the attempt's marker. The last two find what lost its parent.

    Args:
        roots: Process ids of the attempt's first processes.
        marker: The attempt's value of `HEADRACE_ATTEMPT`.
        table: The process table, when it has been read already.

    Returns:
        Without those that have ended, and without the caller itself.
    """
    table = read_processes() if table is None else table
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in table]
    if marker:
        waiting += [pid for pid in table if pid not in found and _is_marked(pid, marker)]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            continue
        found.add(pid)
        waiting += children.get(pid, [])
    sessions = {pid for pid in found if table[pid].session == pid}
    found |= {pid for pid, process in table.items() if process.session in sessions}
    found.discard(os.getpid())
    return [table[pid] for pid in sorted(found) if table[pid].state not in "ZX"]


def _is_marked(pid: int, marker: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:  # noqa: PTH123
            return f"{MARKER}={marker}".encode() in handle.read().split(b"\0")
    except OSError:
        return False


def end_tree(
    roots: Iterable[int],
    *,
    marker: str = "",
    grace_s: float = 5.0,
    kill_s: float = 10.0,
    first: Iterable[int] = (),
    keep: Iterable[int] = (),
    collect: Callable[[], object] = lambda: None,
) -> list[Process]:
    """End all processes of an attempt: TERM, a grace, then KILL, until none is left.

    Args:
        roots: Process ids of the attempt's first processes.
        marker: The attempt's value of `HEADRACE_ATTEMPT`.
        grace_s: How long they may take to end by themselves after TERM.
        kill_s: How long to go on with KILL; only the kernel can hold a process up longer.
        first: Processes that alone get TERM for the first half of the grace: a task's main
            process closes its engine in good order, when that is not taken away under it.
        keep: Processes that live on, such as the supervisor, which adopts orphans meanwhile.
        collect: Called in each round, to collect ended children.

    Returns:
        The processes that are still there; as a rule none.
    """
    roots, kept, early = list(roots), set(keep), set(first)
    told: set[tuple[int, int]] = set()
    began = time.monotonic()
    while True:
        collect()
        left = [process for process in members(roots, marker=marker) if process.pid not in kept]
        waited = time.monotonic() - began
        # Once the first are gone, nobody has to wait for them.
        early &= {process.pid for process in left}
        if not left or waited > grace_s + kill_s:
            return left
        for process in left:
            if waited >= grace_s:
                send_signal(process, signal.SIGKILL)
            elif early and process.pid not in early and waited < grace_s / 2:
                continue
            elif (process.pid, process.started) not in told:
                told.add((process.pid, process.started))
                send_signal(process, signal.SIGTERM)
                # One that is stopped would see the TERM only when it goes on.
                send_signal(process, signal.SIGCONT)
        time.sleep(_TICK_S)


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to this very process: nothing happens when its id belongs to another now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = read_process(process.pid)
        if now and now.started == process.started:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass
    finally:
        os.close(handle)
