"""One attempt of one task: slot, ledger, MLflow run, child process, artifacts."""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prefect.logging import get_run_logger

from headrace.engines.launch import run_attempt
from headrace.engines.spec import (
    AttemptResult,
    AttemptSpec,
    FunctionRef,
    tag_tables,
)
from headrace.exceptions import (
    HeadraceError,
    LeaseLostError,
    TaskCancelledError,
    TaskCrashedError,
    TaskDefinitionError,
    TaskFailedError,
    TaskTimeoutError,
    UserError,
)
from headrace.ledger.heartbeat import keep_lease
from headrace.ledger.records import (
    LEASE_S,
    AttemptRecord,
    ErrorInfo,
    Outcome,
)
from headrace.orchestration.artifacts import show_attachments, show_tables
from headrace.orchestration.code_version import module_file
from headrace.orchestration.events import TaskEvent, tell_line, tell_task
from headrace.orchestration.held_signals import JOINT_S
from headrace.orchestration.replay import remembered
from headrace.orchestration.session import RunSession
from headrace.orchestration.tasks import EngineTask
from headrace.orchestration.tracked import finish_task_run, start_task_run
from headrace.orchestration.usage_table import measured, reserved

if TYPE_CHECKING:
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

Ended = Literal["success", "failed", "timed_out", "cancelled", "crashed"]


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """What belongs to one attempt while it runs."""

    session: RunSession
    task: EngineTask[Any, Any]
    profile: SparkProfile | RayProfile | PythonProfile
    record: AttemptRecord
    folder: Path
    cancel: threading.Event
    mlflow_run_id: str | None

    @property
    def log_path(self) -> Path:
        return self.folder / "log.txt"

    def event(self, state: str, **values: Any) -> TaskEvent:
        return TaskEvent(
            task=self.record.task,
            key=self.record.key,
            attempt=self.record.number,
            profile=self.profile.name,
            state=state,
            log_path=str(self.log_path),
            **values,
        )


def perform(
    session: RunSession,
    task: EngineTask[Any, Any],
    profile: SparkProfile | RayProfile | PythonProfile,
    record: AttemptRecord,
    arguments: dict[str, Any],
    cancel: threading.Event,
) -> Any:
    """Run an attempt that the ledger knows, to its end in the ledger and in MLflow.

    Args:
        session: The run.
        task: The task.
        profile: Its profile.
        record: The attempt, with its fence token.
        arguments: Its arguments, as JSON values.
        cancel: Ends it.

    Returns:
        What the task's function returned.

    Raises:
        TaskFailedError: The function raised an error.
        TaskCrashedError: Its process ended without a result (also by memory, time or a cancel).
        LeaseLostError: The attempt was found dead and its result is refused.
    """
    attempt = _Attempt(
        session=session,
        task=task,
        profile=profile,
        record=record,
        folder=session.folder / _folder_name(record),
        cancel=cancel,
        mlflow_run_id=None,
    )
    try:
        attempt = replace(attempt, mlflow_run_id=start_task_run(session, record, profile))
        session.ledger.annotate_attempt(
            record.id,
            record.token or "",
            log_path=str(attempt.log_path),
            usage=reserved(profile),
            **({"mlflow_run_id": attempt.mlflow_run_id} if attempt.mlflow_run_id else {}),
        )
        tell_task(attempt.event("running"))
        result = _run_child(attempt, arguments)
    except BaseException as error:
        _record_failure(attempt, error)
        raise
    return _record_success(attempt, result)


def _run_child(attempt: _Attempt, arguments: dict[str, Any]) -> AttemptResult:
    session, record, profile = attempt.session, attempt.record, attempt.profile
    logger = get_run_logger()
    with ExitStack() as stack:
        lost = stack.enter_context(
            keep_lease(
                session.ledger.renew_lease,
                record.id,
                record.token or "",
                on_lost=attempt.cancel.set,
            )
        )
        spec = AttemptSpec(
            kind=attempt.task.settings.kind,
            function=_function_ref(attempt.task),
            arguments=arguments,
            task=record.task,
            key=record.key,
            generation=_generation(attempt, arguments),
            cursors=_cursors(session, record),
            attempt=record.number,
            run_id=session.run.id,
            pipeline=session.run.pipeline,
            parameters={**session.run.parameters, **session.repair.parameters},
            profile=profile,
            lake=session.project.environment.lake,
            storage=session.project.environment.storage,
            root=session.project.root,
            folder=attempt.folder,
            env=session.tracker.child_env(attempt.mlflow_run_id, session.experiment),
            mlflow_run_id=attempt.mlflow_run_id,
            address=session.engines.address(profile),
            lease_s=LEASE_S,
        )
        result = run_attempt(
            spec,
            on_line=lambda line: _on_line(attempt, logger, line),
            on_usage=lambda usage: tell_task(
                attempt.event(
                    "running",
                    seconds=usage.wall_s,
                    memory_mib=usage.peak_memory_mib,
                    cpu_s=usage.cpu_s,
                )
            ),
            cancel=attempt.cancel,
            timeout_s=attempt.task.settings.timeout_s or profile.timeout_s,
        )
    if lost.is_set():
        raise LeaseLostError(holder=f"attempt {record.number} of {record.name}", state="crashed")
    return result


def _function_ref(task: EngineTask[Any, Any]) -> FunctionRef:
    """Where the child finds the task's function.

    Raises:
        TaskDefinitionError: It stands inside another function, where no other process finds it.
    """
    function = task.function
    name = function.__qualname__
    if "<" in name:
        raise TaskDefinitionError(
            task=task.name,
            problem="stands inside a function",
            found=f"Its name is {name}, which its own process can't import.",
            fix="move it to the top level of a module",
        )
    file = module_file(function.__module__) or Path(inspect.getfile(function)).absolute()
    return FunctionRef(module=function.__module__, name=name, file=file)


def _generation(attempt: _Attempt, arguments: dict[str, Any]) -> str:
    """A short text that is the same for attempts that do the same work.

    It is made of the task's arguments, the project's code and the number of successes before: a
    task that a repair was told to run again writes again.
    """
    session, record = attempt.session, attempt.record
    successes = session.ledger.count_successes(session.run.id, record.task, record.key)
    work = json.dumps([arguments, session.code_digest, successes], sort_keys=True)
    return hashlib.sha256(work.encode()).hexdigest()[:10]


def _cursors(session: RunSession, record: AttemptRecord) -> dict[str, int]:
    """Where the last successful run of the task ended in each table whose changes it read."""
    last = session.ledger.last_success(record.pipeline, record.task, record.key)
    reads = last.inputs if last else ()
    return {use.ref.uri: use.ref.version for use in reads if use.mode == "changes"}


def _on_line(attempt: _Attempt, logger: Any, line: str) -> None:
    tell_line(attempt.record.name, line)
    logger.info("%s", line)


def _record_success(attempt: _Attempt, result: AttemptResult) -> Any:
    session, record = attempt.session, attempt.record
    session.ledger.finish_attempt(
        record.id,
        record.token or "",
        Outcome(
            state="success",
            result=tag_tables(result.value),
            inputs=tuple(result.reads),
            outputs=tuple(result.writes),
            usage=measured(result.usage, attempt.profile),
        ),
    )
    rows = [write.ref.row_count for write in result.writes if write.ref.row_count is not None]
    tell_task(
        attempt.event(
            "success",
            seconds=result.usage.wall_s,
            memory_mib=result.usage.peak_memory_mib,
            cpu_s=result.usage.cpu_s,
            rows=sum(rows) if rows else None,
            tables=tuple(str(write.ref) for write in result.writes),
        )
    )
    finish_task_run(session, attempt.mlflow_run_id, attempt.profile, result, attempt.log_path)
    show_tables(record.name, result)
    show_attachments(record.name, result)
    return remembered(session, record.name, result.value)


def _record_failure(attempt: _Attempt, error: BaseException) -> None:
    session, record = attempt.session, attempt.record
    state = _end_state(error, attempt)
    # What was measured and written until it failed, when the child came to run at all.
    known: AttemptResult | None = getattr(error, "attempt", None)
    usage = known.usage if known else None
    tell_task(
        attempt.event(
            state,
            seconds=usage.wall_s if usage else 0.0,
            memory_mib=usage.peak_memory_mib if usage else 0.0,
            error=str(error) or type(error).__name__,
        )
    )
    try:
        session.ledger.finish_attempt(
            record.id,
            record.token or "",
            Outcome(
                state=state,
                inputs=tuple(known.reads) if known else (),
                outputs=tuple(known.writes) if known else (),
                error=_error_info(error),
                usage=measured(usage, attempt.profile) if usage else None,
            ),
        )
    except LeaseLostError:
        # It was already counted as crashed; the first verdict stands.
        pass
    except HeadraceError as trouble:
        get_run_logger().error("the failure could not be recorded: %s", trouble)
    finish_task_run(
        session, attempt.mlflow_run_id, attempt.profile, known, attempt.log_path, error=error
    )


def _end_state(error: BaseException, attempt: _Attempt) -> Ended:
    if isinstance(error, TaskTimeoutError):
        return "timed_out"
    if isinstance(error, TaskFailedError | UserError):
        return "failed"
    if isinstance(error, Exception) and not isinstance(error, TaskCancelledError):
        # What ends a process from outside often ends several: our own signal may come right after.
        wait_s = JOINT_S if type(error) is TaskCrashedError else 0
        if not attempt.cancel.wait(wait_s):
            return "crashed"
    return "timed_out" if attempt.session.stop_state == "timed_out" else "cancelled"


def _error_info(error: BaseException) -> ErrorInfo:
    if isinstance(error, TaskFailedError):
        return ErrorInfo(
            type=error.error_type,
            message=error.error_message,
            traceback=error.traceback,
            retryable=error.retryable,
        )
    return ErrorInfo(
        type=type(error).__name__,
        message=str(error),
        traceback=""
        if isinstance(error, HeadraceError)
        else "".join(traceback.format_tb(error.__traceback__)),
        retryable=not isinstance(error, UserError),
    )


def _folder_name(record: AttemptRecord) -> str:
    """`task/1`, or `task-KEY/1` with a key that is safe as a folder's name."""
    from urllib.parse import quote

    name = f"{record.task}-{quote(record.key, safe='')[:80]}" if record.key else record.task
    return f"{name}/{record.number}"
