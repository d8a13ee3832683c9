"""Records a run from its start to its end: claim, leases, tracking, the final state."""

from __future__ import annotations

import getpass
import logging
import signal
import time
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_jsonable_python

from headrace.exceptions import HeadraceError, RunFailedError
from headrace.ledger.conditions import run_state
from headrace.ledger.heartbeat import keep_lease
from headrace.ledger.records import (
    RepairRecord,
    RepairRequest,
    RunRecord,
    RunRequest,
    State,
    split_name,
)
from headrace.ledger.repair import RepairPlan
from headrace.ledger.store import Ledger
from headrace.orchestration.cancel_watch import limit_time, watch_cancel
from headrace.orchestration.code_version import code_digest, code_version
from headrace.orchestration.events import RunEvent, tell_run
from headrace.orchestration.held_signals import HeldSignals
from headrace.orchestration.links import run_links
from headrace.orchestration.options import run_options
from headrace.orchestration.pinned import check_reused_tables
from headrace.orchestration.prefect_watch import show_cancelled, watch_prefect
from headrace.orchestration.project import Project, load_project
from headrace.orchestration.session import RunSession, activate, active_session, deactivate
from headrace.orchestration.shared_engines import SharedEngines
from headrace.orchestration.tasks import named_tasks
from headrace.orchestration.usage_table import run_metrics
from headrace.tracking.records import RunLog, flat_params
from headrace.tracking.tracker import now_ms

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from headrace.orchestration.pipeline import Pipeline
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

log = logging.getLogger("headrace.run")

_EARLIER_S = 1.0

MLFLOW_STATUS: dict[str, Literal["FINISHED", "FAILED", "KILLED"]] = {
    "success": "FINISHED",
    "cancelled": "KILLED",
}


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
        held = stack.enter_context(HeldSignals())
        ledger = stack.enter_context(project.open_ledger())
        ledger.reap_expired()
        claim = _claim(ledger, project, flow, parameters, flow_run)
        with _ending_on_error(held, ledger, flow, claim[0], claim[1], begin):
            session = _make_session(stack, project, ledger, flow, *claim)
        # Polars, which MLflow imports, lets a blocked wait go on after Ctrl-C.
        signal.siginterrupt(signal.SIGINT, True)
        session.leases.enter_context(limit_time(session, flow.timeout_seconds))
        session.leases.enter_context(watch_prefect(session, flow_run.id))
        token = activate(session)
        tell_run(_event(session, "running", links=run_links(session, flow_run.id)))
        error: BaseException | None = None
        try:
            try:
                with session.letting_finish():
                    yield session
            finally:
                held.begin(session.kill)
        except BaseException as caught:
            held.begin()  # again, should a signal have come in between
            if not isinstance(caught, Exception):
                held.count_first()
            error = caught
            _stop(session, flow, caught, time.monotonic() - begin)
            session.wait_after_interrupt()
            raise
        finally:
            state, problem = _finish(session, error)
            seconds = time.monotonic() - begin
            tell_run(_event(session, state, seconds=seconds, error=problem))
            if state == "cancelled":
                show_cancelled(flow_run, problem)
            deactivate(token)
            if error is None and state != "success":
                raise RunFailedError(run_id=session.run.id, state=state, problem=problem)


def _stop(
    session: RunSession, flow: Pipeline[Any, Any], error: BaseException, seconds: float
) -> None:
    """Stop what still runs, and note what the run counts as."""
    if _took_too_long(flow, error, seconds):
        session.stop(f"timed out after {flow.timeout_seconds:g} s", "timed_out")
    elif isinstance(error, Exception):
        session.stop(f"the pipeline ended: {type(error).__name__}", "failed")
    else:
        session.stop(f"interrupted: {type(error).__name__}")


def _took_too_long(flow: Pipeline[Any, Any], error: BaseException, seconds: float) -> bool:
    """Whether an error is the one by which Prefect ends a pipeline after `timeout_seconds`.

    It is of asyncio's class. Asyncio uses it too, at Ctrl-C, before the time is over.
    """
    limit_s = flow.timeout_seconds
    # Prefect began to count a little earlier than we did.
    if not limit_s or not isinstance(error, CancelledError):
        return False
    return seconds >= limit_s - _EARLIER_S


@contextmanager
def _ending_on_error(
    held: HeldSignals,
    ledger: Ledger,
    flow: Pipeline[Any, Any],
    run: RunRecord,
    repair: RepairRecord,
    begin: float,
) -> Iterator[None]:
    """Record the end of a run that does not come to its first task."""
    try:
        yield
    except BaseException as error:
        held.begin()
        state: State = "failed" if isinstance(error, Exception) else "cancelled"
        if _took_too_long(flow, error, time.monotonic() - begin):
            state = "timed_out"
        ledger.finish_run(run.id, repair.seq, state, token=repair.token or "")
        raise


def _claim(
    ledger: Ledger,
    project: Project,
    flow: Pipeline[Any, Any],
    parameters: dict[str, Any],
    flow_run: FlowRun,
) -> tuple[RunRecord, RepairRecord, RepairPlan | None]:
    """The run that this flow run is: a claimed repair, a retry in Prefect, or a new run."""
    parent = active_session()
    claimed = run_options().claimed if parent is None else None
    known = ledger.run_of_flow_run(str(flow_run.id))
    if claimed is not None and known is None:
        run, repair, plan = claimed.run, claimed.repair, claimed.plan
    elif known is not None:
        # Prefect's Retry, on its page or by `retries=`: what succeeded is not run again.
        run, last = known, ledger.current_repair(known.id)
        request = RepairRequest(user=_user(), code=code_version(project.root))
        plan = ledger.plan_repair(run.id, request)
        check_reused_tables(project, ledger, run.id, plan)
        repair = ledger.start_repair(run.id, request, plan=plan, after_seq=last.seq)
    else:
        plan = None
        run, repair = ledger.create_run(_new_run(project, flow, parameters, flow_run, parent))
    ledger.annotate_run(run.id, prefect_flow_run_id=str(flow_run.id))
    ledger.annotate_repair(repair.id, prefect_flow_run_id=str(flow_run.id))
    return run, repair, plan


def _new_run(
    project: Project,
    flow: Pipeline[Any, Any],
    parameters: dict[str, Any],
    flow_run: FlowRun,
    parent: RunSession | None,
) -> RunRequest:
    return RunRequest(
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


def _make_session(
    stack: ExitStack,
    project: Project,
    ledger: Ledger,
    flow: Pipeline[Any, Any],
    run: RunRecord,
    repair: RepairRecord,
    plan: RepairPlan | None,
) -> RunSession:
    session = RunSession(
        project=project,
        ledger=ledger,
        run=run,
        repair=repair,
        plan=plan,
        code_digest=code_digest(project.root, repair.code),
        tracker=project.tracker(),
        experiment=project.environment.mlflow.experiment or flow.name,
        mlflow_run_id=None,
        engines=stack.enter_context(
            SharedEngines(project, project.state / "runs" / run.id / "shared")
        ),
    )
    stack.enter_context(session.leases)
    session.leases.enter_context(
        keep_lease(
            ledger.renew_driver,
            repair.id,
            session.token,
            on_lost=lambda: session.kill("the run's lease was lost", "failed"),
        )
    )
    session.leases.enter_context(watch_cancel(ledger, run.id, session.stop, session.kill))
    session.engines.prepare(_profiles_ahead(project, flow, plan))
    session.mlflow_run_id = _start_tracking(session)
    if session.mlflow_run_id:
        ledger.annotate_run(run.id, mlflow_run_id=session.mlflow_run_id)
    return session


def _profiles_ahead(
    project: Project, flow: Pipeline[Any, Any], plan: RepairPlan | None
) -> list[SparkProfile | RayProfile | PythonProfile]:
    """Profiles of the tasks that the pipeline's code names and that this pass may run."""
    again = None if plan is None else {split_name(d.name)[0] for d in plan.decisions if d.again}
    try:
        return [
            project.profile_of(task.name, task.settings.kind, task.settings.profile)
            for task in named_tasks(flow.function)
            if again is None or task.name in again
        ]
    except HeadraceError:
        return []  # told when the task runs, if it does


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
        if error is None:
            session.record_dropped()
        latest = session.ledger.latest_attempts(session.run.id)
        if state == "success":
            state = run_state(attempt.state for attempt in latest.values())
            if state != "success":
                names = [name for name, a in latest.items() if run_state([a.state]) != "success"]
                problem = f"unsuccessful: {', '.join(names)}"
        session.end_open_attempts(state, problem)
        session.leases.close()
        session.ledger.finish_run(session.run.id, session.repair.seq, state, token=session.token)
    except HeadraceError:
        log.exception("the end of run %s could not be recorded", session.run.id)
        if error is None:
            raise
    _remove_staging(session)
    if session.mlflow_run_id:
        session.tracker.send(
            RunLog(
                mlflow_run_id=session.mlflow_run_id,
                metrics=_metrics(session),
                tags={"headrace.state": state, "headrace.error": problem[:2000]},
                status=MLFLOW_STATUS.get(state, "FAILED"),
                time_ms=now_ms(),
            )
        )
    session.tracker.resend()
    return state, problem


def _metrics(session: RunSession) -> dict[str, float]:
    try:
        return run_metrics(session.ledger, session.run.id)
    except HeadraceError as error:
        log.warning("the totals of run %s could not be read: %s", session.run.id, error)
        return {}


def _remove_staging(session: RunSession) -> None:
    """Remove what was staged for the run; what stays after a crash goes with `headrace gc`."""
    from headrace.bridge.staging import remove_staging

    environment = session.project.environment
    try:
        remove_staging(session.run.id, lake=environment.lake, storage=environment.storage)
    except Exception as error:  # noqa: BLE001 - the run is over, whatever the storage says
        log.warning("staging tables of run %s were not removed: %s", session.run.id, error)


def _end_state(session: RunSession, error: BaseException | None) -> tuple[State, str]:
    if error is None and session.stop_state is None:
        return "success", ""
    problem = session.stop_reason
    if error is not None and session.stop_state != "timed_out":
        problem = str(error) or type(error).__name__
    return session.stop_state or "failed", problem


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
