"""Run one attempt in a process of its own, from the flow's process."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.engines.cache import short_folder
from headrace.engines.log_tail import LogTail
from headrace.engines.outcome import Ending, read_outcome
from headrace.engines.ray_environment import ray_environment
from headrace.engines.ray_job import TOKEN_VARIABLE
from headrace.engines.spec import (
    ALIVE_FILE,
    EXIT_FILE,
    LOG_FILE,
    RESULT_FILE,
    AttemptResult,
    AttemptSpec,
)
from headrace.engines.supervised import Supervised
from headrace.engines.usage import Usage
from headrace.exceptions import StateFolderError
from headrace.profiles.models import PythonProfile, RayProfile
from headrace.profiles.secrets import resolve_secret

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
        StateFolderError: The attempt's folder can't be written.

    Every error that comes after the start has an attribute `attempt`: an `AttemptResult` with what
    the attempt read, wrote and used.
    """
    limit_s = timeout_s if timeout_s is not None else spec.profile.timeout_s
    _prepare(spec)
    attempt = _Attempt(spec, cancel or threading.Event(), limit_s, on_usage)
    tail = LogTail(spec.folder / LOG_FILE, on_line) if on_line else None
    try:
        attempt.run()
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
        if spec.address is None and not isinstance(spec.profile, PythonProfile):
            spec.address = spec.profile.reveal_address()
        spec.write()
    except OSError as error:
        if spec.scratch:
            shutil.rmtree(spec.scratch, ignore_errors=True)
        reason = error.strerror or str(error)
        raise StateFolderError(folder=str(spec.folder), reason=reason) from error


@dataclass
class _Attempt:
    """One attempt, from its start to its end."""

    spec: AttemptSpec
    cancel: threading.Event
    timeout_s: float | None
    on_usage: Callable[[Usage], object] | None
    ending: Ending = field(default_factory=Ending)

    def __post_init__(self) -> None:
        spec = self.spec
        self._tree = Supervised(
            folder=spec.folder,
            root=spec.root,
            scratch=spec.scratch,
            grace_s=spec.grace_s,
            marker=spec.marker,
        )
        self._sampled = 0.0
        self._memory_mib = 0.0

    def run(self) -> None:
        """Start the attempt, and wait until it ends by itself or has to be ended."""
        spec = self.spec
        self._tree.start(
            "headrace.engines._child",
            {**_engine_environment(spec), **_secrets(spec), **spec.env},
        )
        began = time.monotonic()
        while not self._tree.wait(_TICK_S):
            if self.cancel.is_set():
                self.ending.why = "cancel"
            elif self.timeout_s is not None and time.monotonic() - began > self.timeout_s:
                self.ending.why, self.ending.timeout_s = "timeout", self.timeout_s
            else:
                self._look()
            if self.ending.why:
                return

    def _look(self) -> None:
        now = time.monotonic()
        limit_mib = self.spec.profile.memory_mib
        if now - self._sampled < _SAMPLE_S and self._memory_mib < _NEAR_LIMIT * limit_mib:
            return
        usage = self._tree.sample()
        self._sampled, self._memory_mib = now, usage.memory_mib
        if usage.memory_mib > limit_mib:
            self.ending.why = "memory"
            self.ending.used_mib = int(usage.memory_mib)
            self.ending.largest = self._tree.largest
        if self.on_usage:
            with contextlib.suppress(Exception):
                self.on_usage(usage)

    def end(self) -> None:
        """End what is left of the attempt, and note how it ended."""
        # What has used up its memory would only go on with it in a grace.
        grace_s = 0.0 if self.ending.why == "memory" else None
        self.ending.exit_code, self.ending.left = self._tree.end(grace_s=grace_s)
        self.ending.usage = self._tree.finish()


def _secrets(spec: AttemptSpec) -> dict[str, str]:
    """What the profile gives by reference. On a cluster its `env` is resolved there."""
    profile = spec.profile
    if not isinstance(profile, RayProfile) or profile.where != "job":
        return profile.resolve_env(spec.root)
    if profile.token is None:
        return {}
    wanted_by = f"profiles.{profile.name}.token"
    token = resolve_secret(profile.token, root=spec.root, wanted_by=wanted_by)
    return {TOKEN_VARIABLE: token.get_secret_value()}


def _engine_environment(spec: AttemptSpec) -> dict[str, str]:
    """What the engine reads before Python code could set it; the user's own settings win."""
    if spec.kind == "ray":
        return ray_environment(
            new_process=True
        )  # Ray bounds the threads of each of its tasks by itself.
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    return {name: str(spec.profile.cores) for name in names if name not in os.environ}
