"""What a call of a task waits for, how that ended, and whether the task runs.

Prefect itself knows one condition only: everything before a task has succeeded. So it is told to
start every task of ours after its dependencies, however they ended, and the condition is judged
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.utilities.annotations import BaseAnnotation, allow_failure, opaque, quote
from prefect.utilities.collections import StopVisiting, visit_collection

from headrace.ledger.conditions import Verdict, judge, why
from headrace.orchestration.state_names import EXCLUDED, UPSTREAM_FAILED

if TYPE_CHECKING:
    from headrace.ledger import records


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """One task run that a call waits for.

    Attributes:
        task_run_id: Prefect's id of it; None for a state that was made by hand.
        source: Its future, or the state that it ended in.
        counts: Whether the condition looks at it; not so inside `allow_failure`.
    """

    task_run_id: UUID | None
    source: PrefectFuture[Any] | State[Any]
    counts: bool = True

    def outcome(self) -> records.State:
        """How it ended, as the ledger calls it; waits for it."""
        state = self.source
        if isinstance(state, PrefectFuture):
            try:
                state.wait()
            except Exception:  # noqa: BLE001 - a thread that broke did not succeed
                return "failed"
            state = state.state
        if state.is_completed():
            return "excluded" if state.name == EXCLUDED else "success"
        return "upstream_failed" if state.name == UPSTREAM_FAILED else "failed"


def find_dependencies(arguments: object) -> tuple[Dependency, ...]:
    """The futures and states in the arguments of a call, at any depth, each once."""
    found: dict[int, Dependency] = {}

    def visit(value: Any, context: dict[str, Any]) -> Any:
        annotation = context.get("annotation")
        if isinstance(annotation, quote):
            raise StopVisiting
        counts = not isinstance(annotation, allow_failure)
        if isinstance(value, PrefectFuture):
            found[id(value)] = Dependency(
                task_run_id=value.task_run_id, source=value, counts=counts
            )
            raise StopVisiting
        if isinstance(value, State):
            found[id(value)] = Dependency(
                task_run_id=value.state_details.task_run_id, source=value, counts=counts
            )
            raise StopVisiting
        if isinstance(annotation, opaque):
            raise StopVisiting
        return value

    visit_collection(arguments, visit, return_data=False, context={})
    return tuple(found.values())


def tolerant(value: Any) -> Any:
    """An argument, or `wait_for`, that Prefect resolves also when something in it failed."""
    if isinstance(value, BaseAnnotation) or not find_dependencies(value):
        return value
    return allow_failure(value)


def without_failures(value: Any) -> Any:
    """Arguments of a task as it gets them: None in the place of what failed.

    Example:
        >>> without_failures({"rows": 3, "models": [ValueError("no"), "m1"]})
        {'rows': 3, 'models': [None, 'm1']}
    """
    if isinstance(value, BaseException):
        return None
    if type(value) is dict:
        return {key: without_failures(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_failures(item) for item in value)
    return value


def judge_call(
    run_if: records.RunIf,
    waits: tuple[Dependency, ...],
    depends_on: tuple[str, ...],
    nodes: dict[UUID, str],
) -> tuple[Verdict, str]:
    """Decide whether a task runs, and say why.

    Args:
        run_if: Its condition.
        waits: The futures and states that it was handed.
        depends_on: Names of all tasks that it was handed anything of. Those without a future gave
            their result already, so they succeeded.
        nodes: Names of tasks by Prefect's id.
    """
    states: dict[str, records.State] = {}
    tolerated = set()
    for wait in waits:
        name = nodes.get(wait.task_run_id) if wait.task_run_id else None
        label = name or f"task run {wait.task_run_id}"
        if wait.counts:
            states[label] = wait.outcome()
        else:
            tolerated.add(label)
    for name in depends_on:
        if name not in tolerated:
            states.setdefault(name, "success")
    verdict = judge(run_if, states.values())
    failed = [name for name, state in states.items() if state not in ("success", "excluded")]
    all_excluded = bool(states) and set(states.values()) == {"excluded"}
    reason = (
        f"everything before it was excluded: {', '.join(sorted(states))}"
        if all_excluded
        else why(run_if, failed, verdict=verdict)
    )
    return verdict, reason
