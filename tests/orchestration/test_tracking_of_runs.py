"""One MLflow run per pipeline run, one nested run per task, without a line of user code."""

from __future__ import annotations

import json

import pytest

from headrace.orchestration.options import RunOptions, use_options
from headrace.orchestration.project import load_project

pytestmark = pytest.mark.prefect


@pytest.fixture
def mlflow_client(project):
    from mlflow.tracking import MlflowClient

    with use_options(RunOptions()):
        uri = load_project().environment.mlflow.tracking_uri
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def children(client, run):
    experiment = client.get_run(run.mlflow_run_id).info.experiment_id
    found = client.search_runs(
        [experiment], f"tags.`mlflow.parentRunId` = '{run.mlflow_run_id}'", max_results=100
    )
    return {child.data.tags["headrace.task"]: child for child in found}


def test_each_task_has_a_nested_run_with_its_facts(flows, ledger, mlflow_client):
    flows.add_up(count=4)
    run = ledger.get_run("last")
    parent = mlflow_client.get_run(run.mlflow_run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.params == {"count": "4", "limit": "100.0"}
    assert parent.data.tags["headrace.run_id"] == run.id
    assert parent.data.tags["headrace.code.dirty"] in ("true", "false")
    total = children(mlflow_client, run)["total"]
    assert total.info.status == "FINISHED"
    assert total.data.params["profile"] == "other"
    assert total.data.tags["label.team"] == "air"
    assert total.data.metrics["headrace.peak_memory_mib"] > 5
    assert total.data.metrics["headrace.seconds"] > 0
    assert total.data.metrics["headrace.cost"] == pytest.approx(
        total.data.metrics["headrace.seconds"] * 3.6 / 3600
    )


def test_tables_are_logged_with_uri_and_version(flows, ledger, mlflow_client):
    flows.tabled(rows=3)
    run = ledger.get_run("last")
    inputs = children(mlflow_client, run)["read_back"].inputs.dataset_inputs
    ref = ledger.latest_attempts(run.id)["read_back"].inputs[0].ref
    assert [(i.dataset.source_type, i.tags[0].value) for i in inputs] == [("delta_table", "read")]
    source = json.loads(inputs[0].dataset.source)
    assert source == {"path": ref.uri, "delta_table_version": ref.version}


def test_the_users_own_calls_land_in_the_tasks_run(flows, ledger, mlflow_client):
    mlflow_run_id = flows.tracked(value=2.5)
    run = ledger.get_run("last")
    child = children(mlflow_client, run)["log_to_mlflow"]
    assert child.info.run_id == mlflow_run_id
    assert child.data.metrics["mine"] == 2.5
    names = {f.path for f in mlflow_client.list_artifacts(child.info.run_id)}
    assert {"hello.txt", "log"} <= names
    report = children(mlflow_client, run)["attach_report"]
    attached = mlflow_client.list_artifacts(report.info.run_id, "attachments")
    assert [f.path for f in attached] == ["attachments/report.html"]


def test_prefect_shows_tables_and_attachments(flows, ledger):
    from prefect.client.orchestration import get_client

    flows.tracked()
    flows.tabled(rows=2)
    with get_client(sync_client=True) as client:
        response = client._client.post("/artifacts/latest/filter", json={"limit": 50})
    keys = {artifact["key"] for artifact in response.json()}
    assert {"attach-report-report", "make-table-tables", "read-back-tables"} <= keys


def test_a_lost_mlflow_server_loses_no_result(flows, ledger, project):
    from mlflow.tracking import MlflowClient

    from headrace.tracking.resend import resend_offline_runs

    settings = project / "infra" / "profiles" / "offline.toml"
    text = (project / "infra" / "profiles" / "local.toml").read_text()
    settings.write_text(text.replace("[mlflow]", '[mlflow]\ntracking_uri = "http://127.0.0.1:9"'))
    with use_options(RunOptions(env="offline")):
        assert flows.tracked(value=4.5)
    run = ledger.get_run("last")
    assert run.state == "success"
    target = f"sqlite:///{project / 'server.db'}"
    server = MlflowClient(tracking_uri=target, registry_uri=target)
    outbox = project / ".headrace" / "outbox"
    assert resend_offline_runs(outbox, server) == 3
    experiment = server.get_experiment_by_name("tracked")
    found = server.search_runs([experiment.experiment_id])
    assert sorted(r.data.metrics.get("mine", 0) for r in found) == [0, 0, 4.5]
    assert {r.info.status for r in found} == {"FINISHED"}
    assert resend_offline_runs(outbox, server) == 0
    assert len(server.search_runs([experiment.experiment_id])) == 3
