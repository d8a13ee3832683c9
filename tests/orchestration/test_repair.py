"""A repair runs only what failed; the rest keeps its results and its table versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from headrace.exceptions import (
    NothingToRepairError,
    ParameterError,
    ReusedTableGoneError,
    RunNotFoundError,
    TaskFailedError,
    TaskNotFoundError,
)
from headrace.ledger import schema
from headrace.ledger.records import RepairRequest
from headrace.orchestration.options import RunOptions, use_options
from headrace.orchestration.project import load_project
from headrace.orchestration.repair import prepare_repair, repair

pytestmark = pytest.mark.prefect


def labels(flow_run_id: str) -> dict[str, str | int]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        known = client.read_flow_run(flow_run_id).labels
    return {name: value for name, value in known.items() if name.startswith("headrace")}


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
    assert labels(run.prefect_flow_run_id) == {"headrace.run_id": run.id, "headrace.repair": 1}
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
    run = ledger.get_run("last")
    tried = [a for a in ledger.attempts(run.id) if a.task == "at_most"]
    assert [a.number for a in tried] == [1, 2, 3]
    logs = {a.log_path for a in tried}
    assert len(logs) == 3
    assert all(Path(log).exists() for log in logs)


def test_an_override_reaches_only_what_runs_again_and_stays_for_later_repairs(flows, ledger, ran):
    with pytest.raises(TaskFailedError):
        flows.tabled(rows=5, fail=True)
    first = ledger.get_run("last")
    with pytest.raises(TaskFailedError):
        repair(first.id, parameters={"rows": 8})
    assert ran() == ["make_table", "read_back", "read_back"]
    assert repair(first.id, parameters={"fail": False}) == 5
    assert ran() == ["read_back"]
    assert [r.parameters for r in ledger.repairs(first.id)] == [
        {},
        {"rows": 8},
        {"rows": 8, "fail": False},
    ]


def test_a_parameter_that_the_code_no_longer_has_is_left_out(flows, ledger, ran, caplog):
    with pytest.raises(TaskFailedError):
        flows.add_up(count=4, limit=1)
    run = ledger.get_run("last")
    ran()
    # As if the code had had one more when the run was made.
    old = sa.update(schema.run).where(schema.run.c.id == run.id)
    old = old.values(parameters={**run.parameters, "factor": 2})
    ledger.database.write(lambda connection: connection.execute(old))
    with pytest.raises(ParameterError, match="factor"):
        repair(run.id, parameters={"factor": 3})
    assert ran() == []
    assert repair(run.id, parameters={"limit": 10}) == 6.0
    assert ran() == ["at_most"]
    assert "no longer has the parameter 'factor'" in caplog.text


def test_of_two_repairs_at_the_same_moment_one_runs(flows, ledger, ran, project):
    with pytest.raises(TaskFailedError):
        flows.add_up(count=4, limit=1)
    ran()
    run_id = ledger.get_run("last").id
    command = [sys.executable, "-m", "headrace", "repair", run_id, "--param", "limit=10"]
    both = [
        subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = [process.communicate(timeout=400)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], told
    lost = told[[process.returncode for process in both].index(2)]
    # Late enough, the second one finds the run green.
    assert any(text in lost for text in ("RunBusy", "RepairConflict", "NothingToRepair")), lost
    assert ran() == ["at_most"]
    assert [r.state for r in ledger.repairs(run_id)] == ["failed", "success"]


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


@pytest.mark.parametrize("gone", ["file", "log"])
def test_a_repair_that_would_read_a_vacuumed_version_is_refused_before_anything_runs(
    flows, ledger, ran, gone
):
    with pytest.raises(TaskFailedError, match="told to fail"):
        flows.tabled(rows=5, fail=True)
    first = ledger.get_run("last")
    [made] = ledger.latest_attempts(first.id)["make_table"].outputs
    flows.tabled(rows=9)
    ran()
    table = DeltaTable(made.ref.uri)
    if gone == "file":
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        shutil.rmtree(Path(made.ref.uri, "_delta_log"))
    with pytest.raises(ReusedTableGoneError) as caught:
        repair(first.id, parameters={"fail": False})
    assert (caught.value.task, caught.value.maker) == ("read_back", "make_table")
    assert ran() == []
    assert len(ledger.repairs(first.id)) == 1
    # What the error says to do.
    again = repair(
        first.id, tasks=("make_table",), with_dependents=True, parameters={"fail": False}
    )
    assert again == 5
    assert ran() == ["make_table", "read_back"]


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


def test_the_ledger_alone_repairs_what_prefect_has_forgotten(flows, ledger, ran):
    from prefect.client.orchestration import get_client

    with pytest.raises(TaskFailedError):
        flows.add_up(count=4, limit=1)
    run = ledger.list_runs()[0]
    with get_client(sync_client=True) as client:
        client.delete_flow_run(run.prefect_flow_run_id)
    ran()
    assert repair(run.id, parameters={"limit": 10}) == 6.0
    assert ran() == ["at_most"]
    assert ledger.get_run(run.id).state == "success"
    assert state_names(ledger.current_repair(run.id).prefect_flow_run_id)


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
