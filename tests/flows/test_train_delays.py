"""The reference flow end to end, broken by a parameter and repaired, on a sample of real flights."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.exceptions import TaskFailedError
from headrace.ledger.store import open_ledger
from headrace.orchestration.repair import repair

pytestmark = [pytest.mark.demo, pytest.mark.spark, pytest.mark.ray, pytest.mark.prefect]

SPARK_TASKS = ("load_flights", "build_features")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def in_project(state: Path, pytestconfig: pytest.Config, prefect_url: str, monkeypatch) -> None:
    monkeypatch.setenv("HEADRACE_PROJECT", str(pytestconfig.rootpath))
    monkeypatch.setenv("HEADRACE_STATE", str(state))


def test_a_broken_run_is_repaired_from_the_very_versions_it_had_made(in_project, state, flight_csv):
    from flows.train_delays import train_delays

    with pytest.raises(TaskFailedError, match="objective=reg:squarederror"):
        train_delays(source=str(flight_csv), rounds=15, objective="reg:sqaurederror")
    with open_ledger(f"sqlite:///{state / 'ledger.db'}") as ledger:
        run = ledger.get_run("last")
        before = ledger.latest_attempts(run.id)
    assert {name: attempt.state for name, attempt in before.items()} == {
        "load_flights": "success",
        "build_features": "success",
        "train_delay_model": "failed",
    }
    features = before["build_features"].outputs[0].ref
    # The table moves on: the repair must not see it empty.
    DeltaTable(features.uri).delete()

    result = repair(run.id, parameters={"objective": "reg:squarederror"})

    with open_ledger(f"sqlite:///{state / 'ledger.db'}") as ledger:
        after = ledger.latest_attempts(run.id)
        assert ledger.get_run(run.id).state == "success"
    assert all(after[name].reused_from == before[name].id for name in SPARK_TASKS)
    assert after["train_delay_model"].inputs[0].ref == features
    predictions = after["score_flights"].outputs[0].ref
    assert predictions == result["predictions"]
    assert predictions.row_count > 0
    assert Path(result["report"]).read_text("utf-8").startswith("<!")
    assert result["model"] == "models:/flight-delay/1"
    _check_mlflow(state, run.mlflow_run_id, after)
    _check_prefect()


def test_new_flights_are_appended_scored_once_and_measured(in_project, state, flight_csv, tmp_path):
    """What `headrace serve` runs for new files; the run before has left tables and a model."""
    from flows.watch_flights import watch_flights

    header, *lines = (flight_csv / "flights.csv").read_text().splitlines()
    days = {"1": lines[:60], "2": lines[60:150]}
    found = {}
    for day, rows in days.items():
        file = tmp_path / f"{day}.csv"
        # The second file repeats some flights of the first.
        file.write_text("\n".join([header, *rows, *(days["1"][:10] if day == "2" else [])]) + "\n")
        found[day] = watch_flights(files=[str(file)])
    with open_ledger(f"sqlite:///{state / 'ledger.db'}") as ledger:
        attempts = ledger.latest_attempts(ledger.get_run("last").id)
    arrivals = attempts["append_flights"].outputs[0].ref
    scored = attempts["score_arrivals"].outputs[0].ref
    ids = DeltaTable(scored.uri).to_pyarrow_table()["flight_id"].to_pylist()
    assert len(ids) == len(set(ids)) == arrivals.row_count == found["2"]["flights"]
    assert found["1"]["flights"] < found["2"]["flights"] <= 150
    assert [use.mode for use in attempts["score_arrivals"].inputs] == ["changes"]
    assert attempts["append_flights"].usage["spark_tasks"] > 0
    assert found["2"]["stability_index"] > 0
    assert found["2"]["mean_error_minutes"] > 0


def _check_mlflow(state: Path, parent: str, attempts) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(
        tracking_uri=f"sqlite:///{state / 'mlflow.db'}",
        registry_uri=f"sqlite:///{state / 'mlflow.db'}",
    )
    assert client.get_run(parent).data.tags["headrace.pipeline"] == "train_delays"
    trained = client.get_run(attempts["train_delay_model"].mlflow_run_id)
    assert "headrace.peak_memory_mib" in trained.data.metrics
    [read] = trained.inputs.dataset_inputs
    assert '"delta_table_version": 0' in read.dataset.source
    reported = attempts["report_delays"].mlflow_run_id
    files = [file.path for file in client.list_artifacts(reported, "attachments")]
    assert files == ["attachments/flight_delays.html"]


def _check_prefect() -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        found = client._client.post("/artifacts/latest/filter", json={"limit": 200}).json()
    keys = {artifact["key"] for artifact in found}
    assert {"load-flights-tables", "score-flights-tables"} <= keys
    assert any(key.startswith("report-delays-") for key in keys)
