from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from headrace.ledger.conditions import CLEAN_UP, judge, run_state, why
from headrace.ledger.records import RUN_IFS, STATES

ENDED = [state for state in STATES if state not in ("queued", "running")]
FAILURES = {"failed", "timed_out", "cancelled", "crashed", "upstream_failed"}

# Straight from the words of the documentation, each condition by itself.
RULES = {
    "all_success": lambda deps: not any(d in FAILURES for d in deps),
    "at_least_one_success": lambda deps: any(d not in FAILURES for d in deps),
    "none_failed": lambda deps: (
        not any(d in FAILURES for d in deps) and any(d != "excluded" for d in deps)
    ),
    "all_done": lambda deps: True,
    "at_least_one_failed": lambda deps: any(d in FAILURES for d in deps),
    "all_failed": lambda deps: all(d in FAILURES for d in deps),
}


def expected(run_if, deps):
    if not deps:
        return "run"
    if set(deps) == {"excluded"}:
        return "excluded"
    if RULES[run_if](deps):
        return "run"
    return "excluded" if "failed" in run_if and run_if != "none_failed" else "upstream_failed"


@pytest.mark.parametrize("run_if", RUN_IFS)
def test_every_mix_of_up_to_four_dependencies_has_the_documented_outcome(run_if):
    for count in range(5):
        for deps in combinations_with_replacement(ENDED, count):
            assert judge(run_if, deps) == expected(run_if, deps), deps


@pytest.mark.parametrize(
    ("run_if", "deps", "outcome"),
    [
        ("all_success", ["success", "failed"], "upstream_failed"),
        ("all_success", ["success", "excluded"], "run"),
        ("at_least_one_success", ["failed", "success"], "run"),
        ("at_least_one_success", ["failed", "upstream_failed"], "upstream_failed"),
        ("none_failed", ["success", "excluded"], "run"),
        ("none_failed", ["excluded"], "excluded"),
        ("none_failed", ["cancelled", "success"], "upstream_failed"),
        ("all_done", ["crashed", "timed_out"], "run"),
        ("all_done", ["excluded", "excluded"], "excluded"),
        ("at_least_one_failed", ["success", "success"], "excluded"),
        ("at_least_one_failed", ["success", "cancelled"], "run"),
        ("all_failed", ["failed", "success"], "excluded"),
        ("all_failed", ["failed", "upstream_failed"], "run"),
    ],
)
def test_the_outcome_of_a_condition(run_if, deps, outcome):
    assert judge(run_if, deps) == outcome
    failed = [d for d in deps if d in FAILURES]
    assert run_if in why(run_if, failed, verdict=outcome) or not failed


def test_clean_up_tasks_are_those_that_a_cancel_still_lets_run():
    assert {run_if for run_if in RUN_IFS if judge(run_if, ["cancelled"]) == "run"} == CLEAN_UP


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ([], "success"),
        (["success", "excluded"], "success"),
        (["success", "failed", "upstream_failed"], "failed"),
        (["upstream_failed"], "failed"),
        (["timed_out", "failed"], "timed_out"),
        (["timed_out", "cancelled"], "cancelled"),
        (["crashed", "cancelled", "failed"], "crashed"),
        (["success", "running"], "crashed"),
        (["success", "queued"], "crashed"),
    ],
)
def test_a_run_is_green_only_if_everything_ran_or_was_excluded(states, state):
    assert run_state(states) == state
