"""A run while it goes on, in the flow's process: ledger, tracking, leases, shared engines."""

from __future__ import annotations

import getpass
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic_core import to_jsonable_python

from headrace.exceptions import HeadraceError, RunFailedError
from headrace.ledger.conditions import run_state
from headrace.ledger.heartbeat import keep_lease
from headrace.ledger.records import (
    AttemptRequest,
    RepairRecord,
    RepairRequest,
    RunRecord,
    RunRequest,
    State,
    node_name,
)
from headrace.ledger.repair import RepairPlan, graph_of, plan_repair
from headrace.ledger.store import Ledger
from headrace.orchestration.cancel_watch import watch_cancel
from headrace.orchestration.code_version import code_version
from headrace.orchestration.events import RunEvent, tell_run
from headrace.orchestration.links import run_links
from headrace.orchestration.options import run_options
from headrace.orchestration.project import Project, load_project
from headrace.orchestration.shared_engines import SharedEngines
from headrace.orchestration.slots import Slots
from headrace.tracking.records import RunLog, flat_params
from headrace.tracking.tracker import Tracker, now_ms

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from headrace.orchestration.pipeline import Pipeline
    from headrace.orchestration.tasks import EngineTask

log = logging.getLogger("headrace.run")

_session: ContextVar[RunSession | None] = ContextVar("headrace_session", default=None)
_slots = Slots()

MLFLOW_STATUS: dict[str, Literal["FINISHED", "FAILED", "KILLED"]] = {
    "success": "FINISHED",
    "cancelled": "KILLED",
}


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
    slots: Slots = field(default_factory=lambda: _slots)
    _cancels: list[threading.Event] = field(default_factory=list)
    _places: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def token(self) -> str:
        """The driver's fence token."""
        return self.repair.token or ""

    @property
    def folder(self) -> Path:
        """Where the run's attempts keep their logs and results."""
        return self.project.state / "runs" / self.run.id

    def next_place(self, task: str) -> int:
        """How many times the pipeline has called this task before; counts this call."""
        with self._lock:
            place = self._places[task]
            self._places[task] += 1
            return place

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


def open_project(flow: Pipeline[Any, Any]) -> Project:
    """The project of a pipeline."""
    return load_project(flow.source_file())


@contextmanager
def open_session(
    flow: Pipeline[Any, Any], parameters: dict[str, Any], flow_run: FlowRun
) -> Iterator[RunSession]:
    """Record a run from its start to its end, whatever the end is.

    Args:
        flow: The pipeline.
        parameters: Its arguments by name.
        flow_run: Prefect's flow run.

    Raises:
        RunFailedError: The function returned although a task had failed.
    """
    project = open_project(flow)
    begin = time.monotonic()
    with ExitStack() as stack:
        ledger = stack.enter_context(project.open_ledger())
        ledger.reap_expired()
        run, repair = _claim(ledger, project, flow, parameters, flow_run)
        session = _make_session(stack, project, ledger, flow, run, repair)
        token = _session.set(session)
        tell_run(_event(session, "running", links=run_links(session, flow_run.id)))
        error: BaseException | None = None
        try:
            with session.letting_finish():
                yield session
        except BaseException as caught:
            error = caught
            session.stop(f"the pipeline ended: {type(caught).__name__}")
            raise
        finally:
            state, problem = _finish(session, error)
            seconds = time.monotonic() - begin
            tell_run(_event(session, state, seconds=seconds, error=problem))
            _session.reset(token)
            if error is None and state != "success":
                raise RunFailedError(run_id=run.id, state=state, problem=problem)


def _claim(
    ledger: Ledger,
    project: Project,
    flow: Pipeline[Any, Any],
    parameters: dict[str, Any],
    flow_run: FlowRun,
) -> tuple[RunRecord, RepairRecord]:
    """The run that this flow run is: one that was claimed before, or a new one."""
    claimed = run_options().claimed
    if claimed is None or _session.get() is not None:
        parent = _session.get()
        run, repair = ledger.create_run(
            RunRequest(
                pipeline=flow.name,
                entrypoint=flow.entrypoint,
                parameters=to_jsonable_python(parameters, fallback=str),
                environment=project.environment.name,
                user=_user(),
                code=code_version(project.root),
                profiles=dict(project.environment.task_profiles),
                parent_run_id=parent.run.id if parent else None,
                tags=dict.fromkeys(flow_run.tags, ""),
            )
        )
    else:
        run, repair = claimed
    ledger.annotate_run(run.id, prefect_flow_run_id=str(flow_run.id))
    ledger.annotate_repair(repair.id, prefect_flow_run_id=str(flow_run.id))
    return run, repair


def _make_session(
    stack: ExitStack,
    project: Project,
    ledger: Ledger,
    flow: Pipeline[Any, Any],
    run: RunRecord,
    repair: RepairRecord,
) -> RunSession:
    session = RunSession(
        project=project,
        ledger=ledger,
        run=run,
        repair=repair,
        plan=_plan(ledger, run, repair),
        tracker=project.tracker(),
        experiment=project.environment.mlflow.experiment or flow.name,
        mlflow_run_id=None,
        engines=stack.enter_context(SharedEngines(project)),
    )
    stack.enter_context(
        keep_lease(
            ledger.renew_driver,
            repair.id,
            session.token,
            on_lost=lambda: session.stop("the run's lease was lost"),
        )
    )
    stack.enter_context(watch_cancel(ledger, run.id, session.stop))
    session.mlflow_run_id = _start_tracking(session)
    if session.mlflow_run_id:
        ledger.annotate_run(run.id, mlflow_run_id=session.mlflow_run_id)
    return session


def _plan(ledger: Ledger, run: RunRecord, repair: RepairRecord) -> RepairPlan | None:
    if repair.seq == 0:
        return None
    attempts = [a for a in ledger.attempts(run.id) if a.repair_seq < repair.seq]
    request = RepairRequest(tasks=repair.tasks, with_dependents=repair.with_dependents)
    return plan_repair(graph_of(attempts), attempts, request)


def _start_tracking(session: RunSession) -> str | None:
    session.tracker.flush()
    run, repair = session.run, session.repair
    code = repair.code if repair.code.commit else run.code
    name = f"{run.pipeline} {run.id}" + (f" repair {repair.seq}" if repair.seq else "")
    return session.tracker.start_run(
        session.experiment,
        name,
        tags={
            "headrace.run_id": run.id,
            "headrace.repair": str(repair.seq),
            "headrace.pipeline": run.pipeline,
            "headrace.environment": run.environment,
            "headrace.code.commit": code.commit or "unknown",
            "headrace.code.dirty": str(code.dirty).lower(),
            "prefect.flow_run_id": run.prefect_flow_run_id or "",
            "mlflow.source.name": run.entrypoint,
            "mlflow.source.type": "JOB",
            "mlflow.user": run.user,
            **({"mlflow.source.git.commit": code.commit} if code.commit else {}),
        },
        params=flat_params({**run.parameters, **repair.parameters}),
    )


def _finish(session: RunSession, error: BaseException | None) -> tuple[State, str]:
    """Record how the run ended, in the ledger and in MLflow; the run's own error goes first."""
    state, problem = _end_state(session, error)
    try:
        session.record_unstarted()
        latest = session.ledger.latest_attempts(session.run.id)
        if state == "success":
            state = run_state(attempt.state for attempt in latest.values())
            if state != "success":
                names = [name for name, a in latest.items() if run_state([a.state]) != "success"]
                problem = f"unsuccessful: {', '.join(names)}"
        session.ledger.finish_run(session.run.id, session.repair.seq, state, token=session.token)
    except HeadraceError:
        log.exception("the end of run %s could not be recorded", session.run.id)
        if error is None:
            raise
    if session.mlflow_run_id:
        session.tracker.send(
            RunLog(
                mlflow_run_id=session.mlflow_run_id,
                tags={"headrace.state": state, "headrace.error": problem[:2000]},
                status=MLFLOW_STATUS.get(state, "FAILED"),
                time_ms=now_ms(),
            )
        )
    return state, problem


def _end_state(session: RunSession, error: BaseException | None) -> tuple[State, str]:
    if error is None:
        return ("cancelled", session.stop_reason) if session.stop_reason else ("success", "")
    asked = session.stop_reason.startswith("cancelled")
    interrupted = not isinstance(error, Exception)  # Ctrl-C, Prefect's TerminationSignal, exit
    return ("cancelled" if asked or interrupted else "failed"), str(error) or type(error).__name__


def _event(
    session: RunSession,
    state: str,
    *,
    links: dict[str, str] | None = None,
    seconds: float = 0.0,
    error: str = "",
) -> RunEvent:
    return RunEvent(
        run_id=session.run.id,
        pipeline=session.run.pipeline,
        state=state,
        repair=session.repair.seq,
        links=links or {},
        seconds=seconds,
        error=error,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def node_of(task: EngineTask[Any, Any], key: str) -> str:
    """The name that the ledger and repairs know a task or an item by."""
    return node_name(task.name, key)
