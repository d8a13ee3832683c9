"""A run while it goes on, in the flow's process: ledger, tracking, leases, shared engines."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from headrace.ledger.records import (
    NOT_CALLED,
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

CLEAN_UP_S = float(os.environ.get("HEADRACE_CLEAN_UP_S", "300"))
"""How long clean-up tasks have after a cancel."""

StopState = Literal["failed", "cancelled", "timed_out"]

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
        cancel: Set when everything but clean-up tasks has to stop.
        killed: Set when those have to stop too.
        stop_reason: Why, once `cancel` is set.
        stop_state: What the run counts as then.
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
    killed: threading.Event = field(default_factory=threading.Event)
    stop_reason: str = ""
    stop_state: StopState | None = None
    submitted: list[tuple[EngineTask[Any, Any], Any]] = field(default_factory=list)
    nodes: dict[UUID, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    code_digest: str = ""
    leases: ExitStack = field(default_factory=ExitStack)
    calls: CallBook = field(default_factory=CallBook)
    slots: Slots = field(default_factory=lambda: _slots)
    _cancels: dict[threading.Event, bool] = field(default_factory=dict)
    _owners: dict[str, UUID] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def token(self) -> str:
        """The driver's fence token."""
        return self.repair.token or ""

    @property
    def folder(self) -> Path:
        """Where the run's attempts keep their logs and results."""
        return self.project.state / "runs" / self.run.id

    def stop(self, reason: str, state: StopState = "cancelled") -> None:
        """Stop all that the run has started; only clean-up tasks may still run, for a while."""
        with self._lock:
            if not self.stop_reason:
                self.stop_reason, self.stop_state = reason, state
                timer = threading.Timer(CLEAN_UP_S, self.kill, ["clean-up took too long"])
                timer.daemon = True
                timer.start()
                self.leases.callback(timer.cancel)
            self.cancel.set()
            for cancel, is_clean_up in self._cancels.items():
                if not is_clean_up:
                    cancel.set()

    def kill(self, reason: str, state: StopState = "cancelled") -> None:
        """Stop clean-up tasks too."""
        self.stop(reason, state)
        with self._lock:
            self.killed.set()
            for cancel in self._cancels:
                cancel.set()

    @contextmanager
    def cancelling(self, *, clean_up: bool = False) -> Iterator[threading.Event]:
        """An event of one attempt's own that is also set when the whole run stops."""
        own = threading.Event()
        with self._lock:
            self._cancels[own] = clean_up
            if (self.killed if clean_up else self.cancel).is_set():
                own.set()
        try:
            yield own
        finally:
            with self._lock:
                del self._cancels[own]

    def claim_node(self, task_run_id: UUID, name: str) -> bool:
        """Note which task a Prefect task run is; False when another one in this pass is it."""
        with self._lock:
            if self._owners.setdefault(name, task_run_id) != task_run_id:
                return False
            self.nodes[task_run_id] = name
            return True

    @contextmanager
    def letting_finish(self) -> Iterator[None]:
        """Wait for submitted tasks at the end of the block, also when one of them failed.

        The other items of a for-each go on: a repair is to find their results. An interrupt or a
        cancel ends the wait.
        """
        try:
            yield
        except Exception:
            self.wait_for_submitted()
            raise
        self.wait_for_submitted()

    def wait_for_submitted(self) -> None:
        """Wait until every submitted task has ended, in whatever way."""
        for _, future in tuple(self.submitted):
            with contextlib.suppress(Exception):
                future.wait()

    def wait_after_interrupt(self) -> None:
        """Wait for what was stopped, and for clean-up tasks; a second interrupt ends those too."""
        try:
            self.wait_for_submitted()
        except BaseException as error:  # noqa: BLE001 - Ctrl-C, or Prefect's TerminationSignal
            self.kill(f"interrupted again: {type(error).__name__}")
            self.wait_for_submitted()

    def end_open_attempts(self, state: State, reason: str) -> None:
        """End attempts that an interrupt left open between their start and their process's."""
        ended: StopState | Literal["crashed"] = (
            self.stop_state if self.stop_state and state != "failed" else "crashed"
        )
        for attempt in self.ledger.open_attempts(self.run.id):
            if attempt.token and attempt.repair_seq == self.repair.seq:
                self.ledger.finish_attempt(
                    attempt.id, attempt.token, Outcome(state=ended, reason=reason[:500] or None)
                )

    def record_dropped(self) -> None:
        """Record tasks of an earlier pass that the pipeline did not call in this one."""
        seen = set(self.nodes.values())
        for decision in self.plan.decisions if self.plan else ():
            if decision.name not in seen and (decision.again or decision.action != "exclude"):
                task, key = split_name(decision.name)
                self.ledger.record_skipped(
                    self.run.id,
                    AttemptRequest(task=task, key=key),
                    "excluded",
                    seq=self.repair.seq,
                    token=self.token,
                    reason=NOT_CALLED,
                )

    def record_unstarted(self) -> None:
        """Record submitted tasks that Prefect did not even start."""
        stopped = self.stop_state in ("cancelled", "timed_out")
        for task, future in tuple(self.submitted):
            if future.task_run_id in self.nodes or not future.state.is_pending():
                continue
            self.ledger.record_skipped(
                self.run.id,
                AttemptRequest(
                    task=task.name, engine=task.settings.kind, run_if=task.settings.run_if
                ),
                "cancelled" if stopped else "upstream_failed",
                seq=self.repair.seq,
                token=self.token,
                reason=(self.stop_reason if stopped else future.state.message)
                or "a task before it failed",
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
