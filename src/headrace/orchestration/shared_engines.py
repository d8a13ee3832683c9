"""Clusters that the tasks of one run share (`reuse = "run"` in a profile)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.orchestration.project import Project
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

    Profile = SparkProfile | RayProfile | PythonProfile


class SharedEngines:
    """A Ray cluster or a Spark Connect server for each profile that says so, for one run.

    Args:
        project: The project of the run.
        folder: Where the engines keep their logs, one folder each.
    """

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self._starts: dict[str, Future[str]] = {}
        self._open = ExitStack()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._threads:
            self._threads.shutdown()
        self._open.close()

    def prepare(self, profiles: Iterable[Profile]) -> None:
        """Start the shared engines of these profiles now, beside what the run does meanwhile.

        A start that fails is told to the first task that asks for the address.
        """
        for profile in profiles:
            if _is_shared(profile):
                self._start(profile)

    def address(self, profile: Profile) -> str | None:
        """Address of the profile's shared engine; None when each task has one of its own.

        Raises:
            EngineStartError: It did not start. The next call tries again.
        """
        if not _is_shared(profile):
            return None
        start = self._start(profile)
        try:
            return start.result()
        except BaseException:
            with self._lock:
                if self._starts.get(profile.name) is start:
                    del self._starts[profile.name]
            raise

    def _start(self, profile: Profile) -> Future[str]:
        with self._lock:
            if profile.name not in self._starts:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(thread_name_prefix="headrace-engine")
                self._starts[profile.name] = self._threads.submit(self._run, profile)
            return self._starts[profile.name]

    def _run(self, profile: Profile) -> str:
        from headrace.engines.shared import open_shared

        assert profile.engine != "python"  # noqa: S101 - for the type checker; see _is_shared
        shared = open_shared(
            profile,
            storage=self._project.environment.storage,
            root=self._project.root,
            folder=self._folder / profile.name,
            cancel=self._closing,
        )
        engine = shared.__enter__()
        with self._lock:
            self._open.push(shared)
        return engine.address


def _is_shared(profile: Profile) -> bool:
    # A cluster elsewhere is shared already.
    return profile.reuse == "run" and profile.engine != "python" and profile.where == "local"
