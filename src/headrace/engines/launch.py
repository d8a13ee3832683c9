"""Run one attempt in a process of its own, from the flow's process."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.engines.cache import short_folder
from headrace.engines.log_tail import LogTail
from headrace.engines.outcome import Ending, read_outcome
from headrace.engines.process_tree import MARKER, Process, end_tree, read_process
from headrace.engines.spec import (
    ALIVE_FILE,
    EXIT_FILE,
    LOG_FILE,
    RESULT_FILE,
    SECRETS_FILE,
    AttemptResult,
    AttemptSpec,
)
from headrace.engines.usage import Usage, UsageMeter
from headrace.exceptions import StateFolderError

_TICK_S: Final = 0.1
_SAMPLE_S: Final = 0.5
# From this share of the limit on, memory is looked at in every tick.
_NEAR_LIMIT: Final = 0.6


def run_attempt(
    spec: AttemptSpec,
    *,
    on_line: Callable[[str], object] | None = None,
    on_usage: Callable[[Usage], object] | None = None,
    cancel: threading.Event | None = None,
    timeout_s: float | None = None,
) -> AttemptResult:
    """Run a task's attempt to its end, and leave nothing of it behind.

    The attempt has a process tree of its own, bounded by its profile's memory. When this returns
    or raises, every process of it is gone, so that the next attempt can start.

    Args:
        spec: What to run. Its folder is made when it isn't there.
        on_line: Called with each line of the log, from another thread; after 10,000 lines or
            2 MiB it is told where the rest is.
        on_usage: Called about twice a second with what the attempt uses.
        cancel: When it is set, the attempt is ended.
        timeout_s: Time limit; None means the profile's.

    Returns:
        The task's value, the tables it read and wrote, and what it used.

    Raises:
        TaskFailedError: The task raised an error.
        ResultError, ArgumentError, TaskImportError: Wrong use, never retried.
        TaskCrashedError: Its process ended without a result; the subclasses `MemoryLimitError`,
            `TaskTimeoutError`, `TaskCancelledError` and `DiskFullError` say why.
        EngineError: Its engine did not start.
    """
    limit_s = timeout_s if timeout_s is not None else spec.profile.timeout_s
    _prepare(spec)
    attempt = _Attempt(spec, cancel or threading.Event(), limit_s, on_usage)
    tail = LogTail(spec.folder / LOG_FILE, on_line) if on_line else None
    try:
        attempt.start()
        attempt.watch()
    finally:
        attempt.end()
        if tail:
            tail.close()
    return read_outcome(spec, attempt.ending)


def _prepare(spec: AttemptSpec) -> None:
    try:
        spec.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (RESULT_FILE, EXIT_FILE, LOG_FILE):
            (spec.folder / name).unlink(missing_ok=True)
        (spec.folder / ALIVE_FILE).touch()
        spec.scratch = short_folder()
        spec.flow_pid = os.getpid()
        spec.write()
    except OSError as error:
        if spec.scratch:
            shutil.rmtree(spec.scratch, ignore_errors=True)
        raise StateFolderError(
            folder=str(spec.folder), reason=error.strerror or str(error)
        ) from error


@dataclass
class _Attempt:
    """One process tree, from its start to its end."""

    spec: AttemptSpec
    cancel: threading.Event
    timeout_s: float | None
    on_usage: Callable[[Usage], object] | None
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)
    ending: Ending = field(default_factory=Ending)
    _process: subprocess.Popen[bytes] | None = None
    _meter: UsageMeter = field(default_factory=lambda: UsageMeter(0))
    _sampled: float = 0.0

    def start(self) -> None:
        """Start the supervisor, which forks the task's process."""
        spec = self.spec
        environment = {**os.environ, **_thread_limits(spec), **spec.profile.resolve_env(spec.root)}
        environment |= {**spec.env, MARKER: self.marker}
        command = [sys.executable, "-P", "-m", "headrace.engines._child"]
        # Appending to a file can't block and can't break, whoever reads it or not.
        with (spec.folder / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(spec.folder / "spec.json")],
                cwd=spec.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._meter = UsageMeter(self._process.pid)

    def watch(self) -> None:
        """Wait until the attempt ends by itself or has to be ended."""
        assert self._process  # noqa: S101  `start` was called
        began = time.monotonic()
        handle = os.pidfd_open(self._process.pid)
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        try:
            while not poller.poll(_TICK_S * 1000):
                if self.cancel.is_set():
                    self.ending.why = "cancel"
                elif self.timeout_s is not None and time.monotonic() - began > self.timeout_s:
                    self.ending.why, self.ending.timeout_s = "timeout", self.timeout_s
                else:
                    self._look()
                if self.ending.why:
                    return
        finally:
            os.close(handle)

    def _look(self) -> None:
        now = time.monotonic()
        limit_mib = self.spec.profile.memory_mib
        if now - self._sampled < _SAMPLE_S and (
            self._meter.usage.memory_mib < _NEAR_LIMIT * limit_mib
        ):
            return
        self._sampled = now
        with contextlib.suppress(OSError):
            os.utime(self.spec.folder / ALIVE_FILE)
        usage = self._meter.sample()
        if usage.memory_mib > limit_mib:
            self.ending.why = "memory"
            self.ending.used_mib = int(usage.memory_mib)
            self.ending.largest = self._meter.largest
        if self.on_usage:
            with contextlib.suppress(Exception):
                self.on_usage(usage)

    def end(self) -> None:
        """End what is left of the tree, and collect how it ended."""
        process = self._process
        if process is None:
            return
        # The supervisor is not collected before the tree is gone: until then nobody else can
        # have its process id, and it adopts what loses its parent.
        hard = self.ending.why == "memory"
        grace_s = 0.0 if hard else self.spec.grace_s
        roots = [process.pid, *(seen.pid for seen in self._meter.seen if _is_same(seen))]
        self.ending.left = end_tree(roots, marker=self.marker, grace_s=grace_s, keep=[process.pid])
        # With nothing left to watch the supervisor ends by itself, unless it is stopped.
        try:
            self.ending.exit_code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            self.ending.exit_code = process.wait()
        self.ending.usage = self._meter.finish(self.spec.folder / EXIT_FILE)
        (self.spec.folder / SECRETS_FILE).unlink(missing_ok=True)
        if self.spec.scratch:
            shutil.rmtree(self.spec.scratch, ignore_errors=True)


def _is_same(seen: Process) -> bool:
    now = read_process(seen.pid)
    return bool(now and now.started == seen.started)


def _thread_limits(spec: AttemptSpec) -> dict[str, str]:
    """Keep numeric libraries to the profile's cores, where the user has not said otherwise."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    wanted = {name: str(spec.profile.cores) for name in names}
    # Ray sets these itself, for each of its tasks.
    return (
        {} if spec.kind == "ray" else wanted | {n: os.environ[n] for n in names if n in os.environ}
    )
