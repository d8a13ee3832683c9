"""`run_if`, branches and loops: what runs, what is excluded, what a repair makes of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.exceptions import (
    RunFailedError,
    TaskDefinitionError,
    TaskFailedError,
    UpstreamFailedError,
)
from headrace.orchestration.repair import repair
from headrace.orchestration.tasks import python_task

pytestmark = pytest.mark.prefect


@pytest.fixture
def flows(project):
    import condition_flows

    return condition_flows


def states(ledger):
    latest = ledger.latest_attempts(ledger.get_run("last").id)
    return {name: attempt.state for name, attempt in latest.items()}


def prefect_names(flow_run_id, count):
    """Names of the states that Prefect shows, which arrive a little later."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    wanted = FlowRunFilter.model_validate({"id": {"any_": [flow_run_id]}})
    end = time.monotonic() + 60
    with get_client(sync_client=True) as client:
        while True:
            runs = client.read_task_runs(flow_run_filter=wanted)
            if len(runs) == count and all(run.state.is_final() for run in runs):
                return sorted(run.state.name for run in runs)
            assert time.monotonic() < end, [run.state for run in runs]
            time.sleep(0.5)


CASES = [
    ("all_success", ["a", "bad"], "upstream_failed"),
    ("at_least_one_success", ["a", "bad"], "success"),
    ("at_least_one_success", ["bad", "bad2"], "upstream_failed"),
    ("none_failed", ["a", "bad"], "upstream_failed"),
    ("all_done", ["bad", "bad2"], "success"),
    ("at_least_one_failed", ["a", "bad"], "success"),
    ("at_least_one_failed", ["a", "b"], "excluded"),
    ("all_failed", ["a", "bad"], "excluded"),
    ("all_failed", ["bad", "bad2"], "success"),
]


def test_a_condition_decides_by_how_the_tasks_before_ended(flows, ledger):
    with pytest.raises(RunFailedError):
        flows.conditions([case[:2] for case in CASES])
    latest = ledger.latest_attempts(ledger.get_run("last").id)
    for number, (run_if, names, state) in enumerate(CASES):
        last = latest[f"after/{number}"]
        assert (last.run_if, last.state) == (run_if, state)
        assert last.depends_on == tuple(f"step/{name}" for name in names)
        if state == "success":
            assert last.result == [None if "bad" in name else name for name in names]
        else:
            assert last.reason


def test_a_failure_that_was_handled_is_still_a_failure(flows, ledger, ran):
    with pytest.raises(RunFailedError, match="work"):
        flows.rescued(fail=True)
    assert ran() == ["after/help", "call_for_help", "work"]
    assert states(ledger)["call_for_help"] == "success"
    assert ledger.get_run("last").state == "failed"


def test_what_is_excluded_counts_as_success_and_excludes_what_hangs_on_it_alone(flows, ledger, ran):
    assert flows.rescued(fail=False) is None
    assert ran() == ["work"]
    run = ledger.get_run("last")
    latest = ledger.latest_attempts(run.id)
    assert run.state == "success"
    assert (latest["call_for_help"].state, latest["after/help"].state) == ("excluded", "excluded")
    assert "nothing failed" in latest["call_for_help"].reason
    assert "call_for_help" in latest["after/help"].reason
    names = prefect_names(run.prefect_flow_run_id, 3)
    assert names == ["Completed", "Excluded", "Excluded"]


def test_a_repair_excludes_the_handler_once_the_cause_is_gone(flows, ledger, ran):
    with pytest.raises(RunFailedError):
        flows.rescued(fail=True)
    ran()
    assert repair(parameters={"fail": False}) is None
    assert ran() == ["work"]
    assert states(ledger) == {
        "work": "success",
        "call_for_help": "excluded",
        "after/help": "excluded",
    }
    assert ledger.get_run("last").state == "success"


def test_tasks_that_wait_in_vain_have_a_history_with_their_keys(flows, ledger, ran):
    with pytest.raises(RunFailedError):
        flows.waits_in_vain()
    run = ledger.get_run("last")
    latest = ledger.latest_attempts(run.id)
    assert latest["after/one"].state == latest["after/two"].state == "upstream_failed"
    assert latest["after/one"].reason == "all_success is not met: work did not succeed"
    assert prefect_names(run.prefect_flow_run_id, 3) == [
        "Failed",
        "UpstreamFailed",
        "UpstreamFailed",
    ]
    ran()
    assert repair(parameters={"fail": False}) == "through"
    assert ran() == ["after/one", "after/two", "work"]


def test_a_call_that_can_not_start_raises(flows):
    with pytest.raises(UpstreamFailedError, match="work did not succeed"):
        flows.asks_in_vain()


@pytest.mark.parametrize("flow", ["tidied", "tidied_by_hand"])
def test_a_task_that_tidies_up_runs_after_a_failure(flows, ledger, ran, flow):
    with pytest.raises(TaskFailedError, match="told to fail"):
        getattr(flows, flow)()
    assert ran() == ["tidy_up", "work"]
    assert states(ledger) == {"work": "failed", "tidy_up": "success"}


def test_a_branch_that_changes_on_repair_leaves_the_other_one_excluded(flows, ledger, ran):
    with pytest.raises(TaskFailedError):
        flows.branches("left", fail=True)
    assert ran() == ["choose", "finish_way", "go_left"]
    run = ledger.get_run("last")
    again = {"branch": "right", "fail": True}
    with pytest.raises(TaskFailedError):
        repair(run.id, tasks=("choose",), with_dependents=True, parameters=again)
    assert ran() == ["choose", "finish_way", "go_right"]
    assert repair(run.id, parameters={"fail": False}) == "right"
    assert ran() == ["finish_way"]
    assert states(ledger)["go_left"] == "excluded"
    assert ledger.get_run(run.id).state == "success"
    # And back: what was excluded runs, as if it were new.
    back = {"branch": "left", "fail": False}
    assert repair(run.id, tasks=("choose",), with_dependents=True, parameters=back) == "left"
    assert ran() == ["choose", "finish_way", "go_left"]
    assert states(ledger) == {
        "choose": "success",
        "go_left": "success",
        "go_right": "excluded",
        "finish_way": "success",
    }


def test_a_loop_runs_so_many_at_once_and_a_repair_only_the_failed_ones(flows, ledger, ran, notes):
    with pytest.raises(TaskFailedError, match="is bad"):
        flows.loop(items=list(range(6)), bad=[2, 4])
    assert len(ran()) == 6
    most = [int(n) for n in Path(f"{notes}.most").read_text().split()]
    assert max(most) <= 2
    assert repair(parameters={"bad": []}) == list(range(6))
    assert ran() == ["limited/2", "limited/4"]
    limits = ledger.latest_attempts(ledger.get_run("last").id)["limited/2"].limits
    assert limits["loop.limited"] == 1


def test_a_key_that_comes_twice_is_refused(flows, ledger):
    with pytest.raises(TaskDefinitionError, match="twice with the key '3'"):
        flows.loop(items=[1, 3, 3])
    assert ledger.get_run("last").state == "failed"


def test_a_call_that_was_refused_does_not_leave_the_run_green(flows, ledger):
    with pytest.raises(RunFailedError, match="after/set"):
        flows.unconvertible()
    refused = ledger.latest_attempts(ledger.get_run("last").id)["after/set"]
    assert (refused.state, refused.error.type) == ("failed", "ArgumentError")


@pytest.mark.parametrize(
    ("errors", "tries"),
    [(["busy", "busy"], 3), (["busy", "gone"], 2), (["value"], 1)],
)
def test_a_task_is_tried_again_only_after_the_errors_that_it_names(flows, ran, errors, tries):
    if len(errors) < tries:
        assert flows.connecting(errors) == tries
    else:
        with pytest.raises(TaskFailedError):
            flows.connecting(errors)
    assert len(ran()) == tries


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"run_if": "all_sucess"}, 'run_if="all_success"'),
        ({"concurrency": 0}, "concurrency=2"),
        ({"concurrency": True}, "concurrency=2"),
        ({"retry_on": [3]}, "retry_on=\\["),
        ({"no_retry_on": int}, "no_retry_on=\\["),
    ],
)
def test_options_that_can_not_be_meant_are_refused(options, text):
    def task(item: int) -> int:
        return item

    with pytest.raises(TaskDefinitionError, match=text):
        python_task(**options)(task)
    with pytest.raises(TaskDefinitionError, match=text):
        python_task(task).with_options(**options)
