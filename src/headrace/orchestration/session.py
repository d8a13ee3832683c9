"""A run while it goes on, in the flow's process: ledger, tracking, leases, shared engines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from headrace.ledger.records import (
    AttemptRequest,
    Outcome,
    RepairRecord,
    RunRecord,
    State,
    split_name,
)
from headrace.ledger.repair import RepairPlan
from headrace.ledger.store import Ledger
from headrace.orchestration.calls import CallBook
from headrace.orchestration.project import Project
from headrace.orchestration.shared_engines import SharedEngines
from headrace.orchestration.slots import Slots
from headrace.tracking.tracker import Tracker

if TYPE_CHECKING:
    from headrace.orchestration.tasks import EngineTask

log = logging.getLogger("headrace.run")

_session: ContextVar[RunSession | None] = ContextVar("headrace_session", default=None)
_slots = Slots()


@dataclass(kw_only=True)
class RunSession:
    """What the tasks of one run share in the flow's process.

    Attributes:
        project: Root, state folder and environment.
        ledger: The ledger.
        run: The run.
        repair: The pass over it that this process drives; it holds the driver's token.
        plan: What a repair runs again and what it reuses; None for a first execution.
        tracker: MLflow.
        experiment: Name of the MLflow experiment.
        mlflow_run_id: The pipeline's MLflow run, or None when it could not be started.
        engines: Clusters that the run's tasks share.
        cancel: Set when everything has to stop.
        stop_reason: Why, once it is set.
        submitted: Tasks that were submitted, with their futures.
        nodes: Task (and item) by the id of its Prefect task run.
        moved: Tasks (and items) that ran in this pass, and were not reused.
        code_digest: Changes whenever the project's code does.
        leases: What keeps the driver's lease alive; closed just before the run is finished.
        calls: Calls of tasks in the order of the pipeline, and their results.
        slots: Cores and memory of this machine, shared by all runs of this process.
    """

    project: Project
    ledger: Ledger
    run: RunRecord
    repair: RepairRecord
    plan: RepairPlan | None
    tracker: Tracker
    experiment: str
    mlflow_run_id: str | None
    engines: SharedEngines
    cancel: threading.Event = field(default_factory=threading.Event)
    stop_reason: str = ""
    submitted: list[tuple[EngineTask[Any, Any], Any]] = field(default_factory=list)
    nodes: dict[UUID, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    code_digest: str = ""
    leases: ExitStack = field(default_factory=ExitStack)
    calls: CallBook = field(default_factory=CallBook)
    slots: Slots = field(default_factory=lambda: _slots)
    _cancels: list[threading.Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def token(self) -> str:
        """The driver's fence token."""
        return self.repair.token or ""

    @property
    def folder(self) -> Path:
        """Where the run's attempts keep their logs and results."""
        return self.project.state / "runs" / self.run.id

    def stop(self, reason: str) -> None:
        """Stop everything that the run has started."""
        with self._lock:
            if not self.stop_reason:
                self.stop_reason = reason
            self.cancel.set()
            for cancel in self._cancels:
                cancel.set()

    @contextmanager
    def cancelling(self) -> Iterator[threading.Event]:
        """An event of one attempt's own that is also set when the whole run stops."""
        own = threading.Event()
        with self._lock:
            self._cancels.append(own)
        if self.cancel.is_set():
            own.set()
        try:
            yield own
        finally:
            with self._lock:
                self._cancels.remove(own)

    @contextmanager
    def letting_finish(self) -> Iterator[None]:
        """Wait for submitted tasks at the end of the block, also when one of them failed.

        The other items of a for-each go on: a repair is to find their results. An interrupt or a
        cancel ends the wait.
        """
        try:
            yield
        except Exception:
            self._wait_for_submitted()
            raise
        self._wait_for_submitted()

    def _wait_for_submitted(self) -> None:
        for _, future in tuple(self.submitted):
            future.wait()

    def end_open_attempts(self, state: State, reason: str) -> None:
        """End attempts that an interrupt left open between their start and their process's."""
        for attempt in self.ledger.attempts(self.run.id):
            if (
                attempt.state == "running"
                and attempt.token
                and attempt.repair_seq == self.repair.seq
            ):
                ended: Literal["cancelled", "crashed"] = (
                    "cancelled" if state == "cancelled" else "crashed"
                )
                self.ledger.finish_attempt(
                    attempt.id, attempt.token, Outcome(state=ended, reason=reason[:500] or None)
                )

    def record_dropped(self) -> None:
        """Record tasks that were to run again and that the pipeline no longer calls."""
        seen = set(self.nodes.values())
        for decision in self.plan.decisions if self.plan else ():
            if decision.again and decision.name not in seen:
                task, key = split_name(decision.name)
                self.ledger.record_skipped(
                    self.run.id,
                    AttemptRequest(task=task, key=key),
                    "excluded",
                    seq=self.repair.seq,
                    token=self.token,
                    reason="the pipeline no longer calls it",
                )

    def record_unstarted(self) -> None:
        """Record submitted tasks that never started since something before them failed."""
        for task, future in tuple(self.submitted):
            if future.task_run_id in self.nodes or not future.state.is_pending():
                continue
            self.ledger.record_skipped(
                self.run.id,
                AttemptRequest(task=task.name, engine=task.settings.kind),
                "upstream_failed",
                seq=self.repair.seq,
                token=self.token,
                reason=future.state.message or "a task before it failed",
            )


def active_session() -> RunSession | None:
    """The session of the run that this thread belongs to, or None."""
    return _session.get()


def activate(session: RunSession) -> Token[RunSession | None]:
    """Make `session` the one of this thread and of those that Prefect starts from it."""
    return _session.set(session)


def deactivate(token: Token[RunSession | None]) -> None:
    """Undo `activate`."""
    _session.reset(token)
