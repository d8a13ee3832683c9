"""What a run tells those who watch it: the terminal, a test, a page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

log = logging.getLogger("headrace.events")


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """A run began or ended.

    Attributes:
        run_id: The headrace run.
        pipeline: Name of the pipeline.
        state: `running`, `success`, `failed`, `timed_out`, `cancelled` or `crashed`.
        repair: 0 for the original, 1 and more for repairs.
        links: Addresses of pages about the run, by what they show.
        seconds: How long it took; 0 at the start.
        error: Text of the error that ended it, or an empty string.
    """

    run_id: str
    pipeline: str
    state: str
    repair: int = 0
    links: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """A task changed its state, or used more time and memory.

    Attributes:
        task: Name of the task.
        key: Key of the for-each item, or an empty string.
        attempt: 1 for the first.
        profile: Name of the compute profile.
        state: As in the ledger, or `reused`.
        seconds: Wall time so far.
        memory_mib: Highest memory of the whole process tree so far.
        cpu_s: CPU seconds of the whole process tree so far.
        rows: Rows in the tables that it wrote, or None when it wrote none.
        tables: Tables that it wrote, as `name@version`.
        error: Text of the error, or an empty string.
        reason: Why the task did not start, or an empty string.
        log_path: The attempt's log file.
    """

    task: str
    key: str = ""
    attempt: int = 1
    profile: str = ""
    state: str
    seconds: float = 0.0
    memory_mib: float = 0.0
    cpu_s: float = 0.0
    rows: int | None = None
    tables: tuple[str, ...] = ()
    error: str = ""
    reason: str = ""
    log_path: str = ""

    @property
    def label(self) -> str:
        """The task's name, with the item's key when it has one."""
        return f"{self.task}[{self.key}]" if self.key else self.task


class Listener(Protocol):
    """Watches runs. Methods are called from several threads, one call at a time."""

    def on_run(self, event: RunEvent) -> None:
        """A run began or ended."""

    def on_task(self, event: TaskEvent) -> None:
        """A task changed."""

    def on_line(self, label: str, line: str) -> None:
        """A task printed a line."""


_listeners: list[Listener] = []
_lock = threading.RLock()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let `listener` watch the runs of this process inside the block."""
    with _lock:
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)


def tell_run(event: RunEvent) -> None:
    """Tell every listener about a run."""
    _tell("on_run", event)


def tell_task(event: TaskEvent) -> None:
    """Tell every listener about a task."""
    _tell("on_task", event)


def tell_line(label: str, line: str) -> None:
    """Tell every listener about a printed line."""
    _tell("on_line", label, line)


def _tell(method: str, *args: object) -> None:
    with _lock:
        for listener in tuple(_listeners):
            try:
                getattr(listener, method)(*args)
            except (Exception, SystemExit):
                # A watcher that fails must not end the run that it watches.
                log.exception("a listener failed")
