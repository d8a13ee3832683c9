"""Clusters that the tasks of one run share (`reuse = "run"` in a profile)."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.orchestration.project import Project
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile


class SharedEngines:
    """Starts a Ray cluster or a Spark Connect server when the first task of a run needs it.

    Args:
        project: The project of the run.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._addresses: dict[str, str] = {}
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def address(self, profile: SparkProfile | RayProfile | PythonProfile) -> str | None:
        """Address of the profile's shared cluster; None when each task has one of its own."""
        if profile.reuse != "run" or profile.engine == "python":
            return None
        from headrace.engines.shared import open_shared

        with self._lock:
            if profile.name not in self._addresses:
                shared = open_shared(
                    profile,
                    storage=self._project.environment.storage,
                    root=self._project.root,
                    folder=self._project.state / "shared",
                )
                self._addresses[profile.name] = self._stack.enter_context(shared).address
            return self._addresses[profile.name]
