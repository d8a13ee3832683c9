"""What a call of a task means to a repair: which item it is, and whether it is reused.

A repair runs the pipeline's function again. Each call of a task is looked up by task and key: what
the plan reuses gives its recorded result at once, and everything else runs.
"""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import TaskRunResult
from prefect.context import TaskRunContext
from prefect.states import Completed

from headrace.engines.spec import untag_tables
from headrace.exceptions import TaskDefinitionError, TaskFailedError
from headrace.ledger.records import NOT_CALLED, AttemptRecord, node_name, split_name
from headrace.orchestration.calls import current_call
from headrace.orchestration.events import TaskEvent, tell_task
from headrace.orchestration.session import RunSession
from headrace.orchestration.skips import state_of
from headrace.orchestration.state_names import REUSED
from headrace.orchestration.tasks import EngineTask


def item_key(task: EngineTask[Any, Any], arguments: dict[str, Any]) -> str:
    """Key of the for-each item: what the task says, else its place among the task's calls."""
    key = task.settings.key
    if callable(key):
        return str(key(arguments))
    if key is not None:
        return str(arguments[key])
    place = current_call().place
    return str(place + 1) if place else ""


def note_call(session: RunSession, task: str, key: str) -> tuple[str, ...]:
    """Remember which Prefect task run this is, and give the tasks whose results it was handed.

    Raises:
        TaskDefinitionError: The run has another item with the key.
    """
    context = TaskRunContext.get()
    if context is None:
        return ()
    name = node_name(task, key)
    if not session.claim_node(context.task_run.id, name):
        raise TaskDefinitionError(
            task=task,
            problem=f"is called twice with the key {key!r}" if key else "is called twice at once",
            found="A repair knows an item by its key, so each item needs one of its own.",
            fix="give each item once, or a `key` that tells them apart",
        )
    found = {
        session.nodes[given.id]
        for inputs in context.task_run.task_inputs.values()
        for given in inputs
        if isinstance(given, TaskRunResult) and given.id in session.nodes
    }
    return tuple(sorted(found | current_call().depends_on))


def earlier_attempt(
    session: RunSession, name: str, depends_on: tuple[str, ...]
) -> AttemptRecord | None:
    """The attempt whose outcome stands, or None when the task has to run."""
    moved = [dependency for dependency in depends_on if dependency in session.moved]
    earlier = None
    if session.plan is not None and not session.plan.runs_again(name, moved):
        earlier = session.ledger.latest_attempt(session.run.id, *split_name(name))
    # The branch that an earlier pass did not take is taken now.
    if earlier is None or (earlier.state, earlier.reason) == ("excluded", NOT_CALLED):
        session.moved.add(name)
        return None
    return earlier


def take_over(session: RunSession, earlier: AttemptRecord) -> Any:
    """Let an earlier attempt stand for this call: its result, or its failure."""
    if earlier.state in ("excluded", "upstream_failed"):
        reason = earlier.reason or "as before"
        if earlier.state == "excluded":
            _record_reused(session, earlier)
        tell_task(
            TaskEvent(
                task=earlier.task,
                key=earlier.key,
                attempt=earlier.number,
                state=earlier.state,
                reason=reason,
            )
        )
        return state_of(earlier.name, earlier.state, reason)
    if earlier.state != "success":
        error = earlier.error
        raise TaskFailedError(
            task=earlier.name,
            error_type=error.type if error else earlier.state,
            error_message=error.message if error else "this repair was not asked to run it again",
            traceback=error.traceback if error else "",
            log_path=earlier.log_path or "",
            retryable=False,
        )
    _record_reused(session, earlier)
    rows = [out.ref.row_count for out in earlier.outputs if out.ref.row_count is not None]
    tell_task(
        TaskEvent(
            task=earlier.task,
            key=earlier.key,
            attempt=earlier.number,
            profile=earlier.profile or "",
            state="reused",
            rows=sum(rows) if rows else None,
            tables=tuple(str(out.ref) for out in earlier.outputs),
            log_path=earlier.log_path or "",
        )
    )
    result = remembered(session, earlier.name, untag_tables(earlier.result))
    # Prefect's page says so too, instead of a task that took no time.
    return Completed(name=REUSED, message=f"attempt {earlier.number} stands", data=result)


def _record_reused(session: RunSession, earlier: AttemptRecord) -> None:
    if earlier.repair_seq != session.repair.seq:
        session.ledger.record_reused(
            session.run.id, earlier.id, seq=session.repair.seq, token=session.token
        )


def remembered(session: RunSession, name: str, result: Any) -> Any:
    """The result of a task, known as such when the pipeline hands it on."""
    session.calls.remember(name, result)
    return result
