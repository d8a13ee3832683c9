"""One call of a task: which item it is, whether it runs, when there is room for it."""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect.context import TaskRunContext

from headrace.engines.spec import encode_arguments
from headrace.engines.supervised import end_leftovers
from headrace.exceptions import (
    EngineError,
    SlotsFullError,
    TaskCancelledError,
    TaskDefinitionError,
    TaskFailedError,
)
from headrace.ledger.conditions import Verdict
from headrace.ledger.leases import own_host
from headrace.ledger.records import AttemptRecord, AttemptRequest, node_name
from headrace.orchestration.attempts import perform
from headrace.orchestration.calls import current_call
from headrace.orchestration.dependencies import judge_call, without_failures
from headrace.orchestration.events import TaskEvent, tell_task
from headrace.orchestration.held_signals import sparing_clean_up, work_uninterrupted
from headrace.orchestration.replay import earlier_attempt, item_key, note_call, take_over
from headrace.orchestration.session import RunSession, active_session
from headrace.orchestration.skips import record_cancelled, record_refused, stand_aside
from headrace.orchestration.slots import check_not_cancelled, machine_shares, task_share
from headrace.orchestration.tasks import EngineTask

if TYPE_CHECKING:
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
"""How often a task looks whether other processes have made room."""


def run_task(task: EngineTask[Any, Any], arguments: dict[str, Any]) -> Any:
    """Run a task of the active session, or give what an earlier attempt of it made.

    Args:
        task: The task.
        arguments: Its arguments by name, futures resolved.

    Returns:
        What the task's function returned.

    Raises:
        TaskDefinitionError: The task is not called from a pipeline.
        TaskFailedError: The function raised an error.
        TaskCrashedError: Its process ended without a result (also by memory, time or a cancel).
        LeaseLostError: The attempt was found dead and its result is refused.
    """
    session = active_session()
    if session is None:
        raise TaskDefinitionError(
            task=task.name,
            problem="is called from a flow that is not a pipeline",
            found="Its run needs a ledger entry, an environment and a profile.",
            fix="decorate the flow with @pipeline instead of @flow",
        )
    arguments = without_failures(arguments)
    request = AttemptRequest(task=task.name, engine=task.settings.kind, run_if=task.settings.run_if)
    try:
        key = item_key(task, arguments)
        depends_on = note_call(session, task.name, key)
        request = request.model_copy(update={"key": key, "depends_on": depends_on})
        earlier = earlier_attempt(session, node_name(task.name, key), depends_on)
        if earlier is not None:
            return take_over(session, earlier)
        verdict, reason = _judge(session, request)
        if verdict != "run":
            return stand_aside(session, request, verdict, reason)
        profile = session.project.profile_of(task.name, task.settings.kind, task.settings.profile)
        spec_arguments = encode_arguments(task.name, arguments)
    except (TaskFailedError, EngineError):
        raise
    except Exception as error:
        record_refused(session, request, error)
        raise
    request = _with_profile(session, task, request, profile)
    tell_task(TaskEvent(task=task.name, key=key, profile=profile.name, state="queued"))
    is_clean_up = task.settings.is_clean_up
    with (
        sparing_clean_up(session.kill, sys.exception() if is_clean_up else None),
        session.cancelling(clean_up=is_clean_up) as cancel,
    ):
        return work_uninterrupted(
            partial(_when_there_is_room, session, task, profile, request, spec_arguments, cancel),
            stop=cancel.set,
            again=session.kill,
        )


def _judge(session: RunSession, request: AttemptRequest) -> tuple[Verdict, str]:
    waits = current_call().waits
    return judge_call(request.run_if, waits, request.depends_on, session.nodes)


def _with_profile(
    session: RunSession,
    task: EngineTask[Any, Any],
    request: AttemptRequest,
    profile: SparkProfile | RayProfile | PythonProfile,
) -> AttemptRequest:
    context = TaskRunContext.get()
    limit = task_share(session.run.pipeline, task.name, task.settings.concurrency)
    return request.model_copy(
        update={
            "profile": profile.name,
            "engine": profile.engine,
            "limits": {**machine_shares(profile), **limit},
            "prefect_task_run_id": str(context.task_run.id) if context else None,
        }
    )


def _when_there_is_room(
    session: RunSession,
    task: EngineTask[Any, Any],
    profile: SparkProfile | RayProfile | PythonProfile,
    request: AttemptRequest,
    arguments: dict[str, Any],
    cancel: threading.Event,
) -> Any:
    """Wait for room here and beside the runs of other processes, then run the attempt."""
    pause_s = FIRST_PAUSE_S
    try:
        while True:
            with session.slots.hold(task.name, request.limits, cancel):
                record = _try_to_start(session, request)
                if record is not None:
                    return perform(session, task, profile, record, arguments, cancel)
            cancel.wait(pause_s)
            check_not_cancelled(task.name, cancel)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
    except TaskCancelledError as error:
        if not error.log_path:
            record_cancelled(session, request)
        raise


def _try_to_start(session: RunSession, request: AttemptRequest) -> AttemptRecord | None:
    """The attempt's record; None while other processes hold what it needs."""
    _end_leftovers(session.ledger.latest_attempt(session.run.id, request.task, request.key))
    try:
        return session.ledger.start_attempt(
            session.run.id, request, seq=session.repair.seq, token=session.token
        )
    except SlotsFullError:
        return None


def _end_leftovers(earlier: AttemptRecord | None) -> None:
    """End what a crashed attempt may have left running on this machine, before the next starts."""
    if earlier is None or earlier.state != "crashed" or not earlier.log_path:
        return
    folder = Path(earlier.log_path).parent
    if earlier.host == own_host() and folder.is_dir():
        end_leftovers(folder)
