"""A project as a run sees it: its root, its state folder, its environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.exceptions import ProfileNotFoundError, ProjectNotFoundError
from headrace.ledger.store import Ledger, open_ledger
from headrace.orchestration.options import run_options
from headrace.orchestration.tasks import Kind
from headrace.profiles.load import load_environment
from headrace.profiles.models import Environment, PythonProfile, RayProfile, SparkProfile
from headrace.profiles.project import find_project, state_dir
from headrace.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class Project:
    """Where a run happens.

    Attributes:
        root: The project's folder.
        state: Its state folder, which exists.
        environment: The environment that was chosen.
    """

    root: Path
    state: Path
    environment: Environment

    def open_ledger(self) -> Ledger:
        """The ledger of the environment."""
        return open_ledger(self.environment.ledger_url)

    def tracker(self) -> Tracker:
        """MLflow, as the environment says."""
        settings = self.environment.mlflow
        # A server has a place of its own for artifacts; a folder of this machine is the usual one
        # only for a store on this machine.
        is_server = settings.tracking_uri.startswith(("http://", "https://"))
        is_written = "mlflow.artifact_root" in self.environment.origins
        return Tracker(
            settings.tracking_uri,
            outbox=self.state / "outbox",
            artifact_root=settings.artifact_root if is_written or not is_server else None,
            timeout_s=settings.timeout_s,
            registry_uri=settings.registry_uri,
        )

    def ensure_prefect(self, *, on_wait: Callable[[float], None] | None = None) -> str:
        """The address of Prefect's API; the project's own server is started when needed."""
        from headrace.orchestration.prefect_api import ensure_prefect

        return ensure_prefect(self.environment, self.state, on_wait=on_wait)

    def profile_of(
        self, task: str, kind: Kind, profile: str | None
    ) -> SparkProfile | RayProfile | PythonProfile:
        """The profile of a task: the one it names, or the environment's first for its engine.

        Raises:
            ProfileNotFoundError: The environment has no such profile.
            ProfileEngineError: It is for another engine.
        """
        chosen = self.environment.task_profiles.get(task, profile)
        if chosen is None:
            fitting = [p.name for p in self.environment.profiles.values() if p.engine == kind]
            if not fitting:
                raise ProfileNotFoundError(
                    profile=kind,
                    task=task,
                    file=self.environment.file,
                    defined=sorted(self.environment.profiles),
                )
            chosen = fitting[0]
        return self.environment.profile(chosen, task=task, engine=kind)


def load_project(source_file: Path | None = None) -> Project:
    """Find the project and read its environment.

    Args:
        source_file: The pipeline's file; the project is looked for from there when neither the
            options nor HEADRACE_PROJECT name it.

    Raises:
        ProjectNotFoundError, ProfileError, StateFolderError: See there.
    """
    options = run_options()
    root = options.root or _root(source_file)
    environment = load_environment(options.env, root=root, profiles=options.task_profiles)
    return Project(root=root, state=state_dir(root), environment=environment)


def _root(source_file: Path | None) -> Path:
    if source_file is None or os.environ.get("HEADRACE_PROJECT"):
        return find_project()
    try:
        return find_project(source_file.parent)
    except ProjectNotFoundError:
        return find_project()
