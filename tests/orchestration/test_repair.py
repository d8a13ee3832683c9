"""A repair runs only what failed; the rest keeps its results and its table versions."""

from __future__ import annotations

import time

import pytest

from headrace.exceptions import (
    NothingToRepairError,
    RunNotFoundError,
    TaskFailedError,
    TaskNotFoundError,
)
from headrace.ledger.records import RepairRequest
from headrace.orchestration.options import RunOptions, use_options
from headrace.orchestration.project import load_project
from headrace.orchestration.repair import prepare_repair, repair

pytestmark = pytest.mark.prefect


def state_names(flow_run_id: str) -> list[str]:
    """Names of the states that Prefect shows of a flow run's tasks, which arrive a little later."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    wanted = FlowRunFilter.model_validate({"id": {"any_": [flow_run_id]}})
    end = time.monotonic() + 60
    with get_client(sync_client=True) as client:
        while True:
            runs = client.read_task_runs(flow_run_filter=wanted)
            if len(runs) == 3 and all(run.state.is_final() for run in runs):
                return sorted(run.state.name for run in runs)
            assert time.monotonic() < end, [run.state for run in runs]
            time.sleep(0.5)


def test_repair_runs_only_what_failed(flows, ledger, ran):
    with pytest.raises(TaskFailedError, match="more than"):
        flows.add_up(count=4, limit=1)
    assert ran() == ["at_most", "numbers", "total"]
    assert repair(parameters={"limit": 10}) == 6.0
    assert ran() == ["at_most"]
    run = ledger.get_run("last")
    latest = ledger.latest_attempts(run.id)
    assert state_names(run.prefect_flow_run_id) == ["Completed", "Reused", "Reused"]
    assert run.state == "success"
    assert latest["numbers"].reused_from is not None
    assert latest["at_most"].number == 2
    assert [r.state for r in ledger.repairs(run.id)] == ["failed", "success"]


def test_a_second_repair_finds_results_of_both_passes(flows, ledger, ran):
    with pytest.raises(TaskFailedError):
        flows.add_up(count=5, limit=1)
    ran()
    with pytest.raises(TaskFailedError):
        repair(parameters={"limit": 2})
    assert ran() == ["at_most"]
    assert repair(parameters={"limit": 100}) == 10.0
    assert ran() == ["at_most"]
    numbers = [a.number for a in ledger.attempts(ledger.get_run("last").id) if a.task == "at_most"]
    assert numbers == [1, 2, 3]


def test_failed_items_are_found_by_key_and_not_by_place(flows, ran):
    with pytest.raises(TaskFailedError, match="is bad"):
        flows.squares(items=[1, 2, 3, 4], bad=[2, 4])
    ran()
    assert repair(parameters={"bad": [], "items": [4, 3, 2, 1]}) == [16, 9, 4, 1]
    assert ran() == ["square/2", "square/4"]


def test_the_rerun_task_reads_the_version_of_the_first_run(flows, ledger, ran):
    with pytest.raises(TaskFailedError, match="told to fail"):
        flows.tabled(rows=5, fail=True)
    first = ledger.get_run("last")
    # The table moves on before the repair.
    assert flows.tabled(rows=9) == 9
    ran()
    assert repair(first.id, parameters={"fail": False}) == 5
    assert ran() == ["read_back"]


def test_a_green_run_has_nothing_to_repair(flows, ledger, ran):
    flows.add_up(count=2)
    with pytest.raises(NothingToRepairError, match="green"):
        repair()
    ran()
    repair(tasks=("total",), with_dependents=True)
    assert ran() == ["at_most", "total"]


def test_unknown_runs_and_tasks_are_named(flows):
    flows.add_up(count=2)
    with use_options(RunOptions()):
        project = load_project()
    with pytest.raises(RunNotFoundError):
        prepare_repair(project, "999999", RepairRequest())
    with pytest.raises(TaskNotFoundError, match="totl") as caught:
        prepare_repair(project, "last", RepairRequest(tasks=("totl",)))
    assert "total" in str(caught.value)


def test_a_retry_in_prefect_asks_the_ledger(flows, ledger, ran):
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Scheduled

    with pytest.raises(TaskFailedError):
        flows.tabled(rows=4, fail=True)
    ran()
    first = ledger.get_run("last")
    with get_client(sync_client=True) as client:
        # What the Retry button of Prefect's page does: the same flow run is scheduled again.
        client.set_flow_run_state(first.prefect_flow_run_id, Scheduled(), force=True)
        flow_run = client.read_flow_run(first.prefect_flow_run_id)
    with pytest.raises(TaskFailedError):
        run_flow(flows.tabled, flow_run=flow_run)
    assert ran() == ["read_back"]
    again = ledger.get_run("last")
    assert again.id == first.id
    assert [repair.seq for repair in ledger.repairs(first.id)] == [0, 1]


def test_retries_of_the_flow_run_only_what_failed(flows, ledger, ran):
    with pytest.raises(TaskFailedError):
        flows.add_up.with_options(retries=1)(count=4, limit=1)
    assert ran() == ["at_most", "at_most", "numbers", "total"]


def test_a_task_that_the_code_no_longer_has_does_not_keep_the_run_red(flows, ledger, ran):
    with pytest.raises(TaskFailedError):
        flows.add_up(count=4, limit=1)
    run = ledger.get_run("last")
    ledger.mark(run.id, "at_most", state="failed", reason="for the test", user="me")
    flows.set_old_code(False)
    try:
        assert repair(run.id) == 6.0
    finally:
        flows.set_old_code(True)
    latest = ledger.latest_attempts(run.id)
    assert latest["at_most"].state == "excluded"
    assert "no longer calls" in latest["at_most"].reason
    assert ledger.get_run(run.id).state == "success"


def test_a_task_that_is_told_to_run_again_writes_again(flows, ledger, ran):
    assert flows.tabled(rows=3) == 3
    run = ledger.get_run("last")
    before = ledger.latest_attempts(run.id)["make_table"].outputs[0].ref
    assert repair(run.id, tasks=("make_table",), with_dependents=True, parameters={"rows": 8}) == 8
    assert ran() == ["make_table", "make_table", "read_back", "read_back"]
    after = ledger.latest_attempts(run.id)["make_table"].outputs[0].ref
    assert (before.row_count, after.row_count) == (3, 8)
    assert after.version > before.version


def test_a_failed_attempt_tells_what_it_used(flows, ledger):
    with pytest.raises(TaskFailedError):
        flows.add_up(limit=1)
    failed = ledger.latest_attempts(ledger.get_run("last").id)["at_most"]
    assert failed.usage["wall_s"] > 0
    assert failed.error.type == "builtins.ValueError"
