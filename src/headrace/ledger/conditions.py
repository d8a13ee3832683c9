"""When a task runs, and what it is called when it doesn't: the six `run_if` conditions.

The outcomes are those of Lakeflow Jobs ("Configure task dependencies" in its documentation): an
unmet success-type condition gives `upstream_failed`; an unmet failure-type one gives `excluded`,
which counts as success; a task whose dependencies are all excluded is excluded whatever its
condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from headrace.ledger.records import ACTIVE, GOOD, RunIf, State

Verdict = Literal["run", "upstream_failed", "excluded"]

FAILURE_TYPE: frozenset[RunIf] = frozenset({"at_least_one_failed", "all_failed"})
"""Conditions of tasks that handle a failure."""

CLEAN_UP: frozenset[RunIf] = FAILURE_TYPE | {"all_done"}
"""Conditions of tasks that still run after a cancel."""


def judge(run_if: RunIf, dependencies: Iterable[State]) -> Verdict:
    """Decide whether a task runs, from how its dependencies ended.

    A success is `success` or `excluded`; every other state, `upstream_failed` too, is a failure.

    Args:
        run_if: The task's condition.
        dependencies: How each dependency ended; a task without any runs.

    Example:
        >>> judge("all_success", ["success", "excluded"])
        'run'
        >>> judge("at_least_one_failed", ["success", "success"])
        'excluded'
        >>> judge("all_success", ["success", "crashed"])
        'upstream_failed'
    """
    states = list(dependencies)
    if not states:
        return "run"
    if all(state == "excluded" for state in states):
        return "excluded"
    good = sum(state in GOOD for state in states)
    if _is_met(run_if, good, len(states) - good):
        return "run"
    return "excluded" if run_if in FAILURE_TYPE else "upstream_failed"


def _is_met(run_if: RunIf, good: int, bad: int) -> bool:
    match run_if:
        case "all_success" | "none_failed":
            return bad == 0
        case "at_least_one_success":
            return good > 0
        case "all_done":
            return True
        case "at_least_one_failed":
            return bad > 0
        case "all_failed":
            return good == 0


def why(run_if: RunIf, failed: Iterable[str], *, verdict: Verdict) -> str:
    """Say in a few words what a verdict comes from.

    Args:
        run_if: The condition.
        failed: Names of the dependencies that did not succeed.
        verdict: What `judge` said.
    """
    names = ", ".join(sorted(failed))
    if verdict == "run":
        return f"{run_if} is met"
    if verdict == "upstream_failed":
        return f"{run_if} is not met: {names} did not succeed"
    return f"{run_if} is not met: {names} failed, others did not" if names else "nothing failed"


def run_state(latest: Iterable[State]) -> State:
    """The state of a run whose tasks have ended: green only if everything ran well or was excluded.

    Of several kinds of trouble the one that says most comes first: a crash, a cancel, a time-out.

    Args:
        latest: State of the latest attempt of every task and item.
    """
    states = set(latest)
    if states <= GOOD:
        return "success"
    # What is queued or running without a lease never came to an end.
    if states & (ACTIVE | {"crashed"}):
        return "crashed"
    if "cancelled" in states:
        return "cancelled"
    return "timed_out" if "timed_out" in states else "failed"
