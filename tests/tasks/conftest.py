"""What the tasks make of some days of the real flights, once per session."""

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from headrace.context import TaskContext, use_context
from headrace.tables import TableRef
from tasks.boosted_trees import TreeSettings
from tasks.build_features import build_features
from tasks.load_flights import load_flights
from tasks.report_delays import report_delays
from tasks.score_flights import score_flights
from tasks.train_delay_model import train_delay_model


@dataclass
class Demo:
    """What the five tasks returned, on the sample."""

    tables: dict[str, TableRef]
    features: TableRef
    model: dict[str, Any]
    predictions: TableRef
    report: dict[str, str]
    run_id: str
    settings: TreeSettings


@pytest.fixture(scope="session")
def task_context(tmp_path_factory):
    """A context with a lake of its own, for two workers."""
    state = tmp_path_factory.mktemp("state")
    return TaskContext(run_id="sample", lake=str(state / "lake"), cores=2, workers=2)


@contextmanager
def _running(context: TaskContext, task: str):
    with use_context(TaskContext(**{**vars(context), "task": task})) as running:
        yield running


@pytest.fixture(scope="session")
def loaded(spark, flight_csv, task_context) -> dict[str, TableRef]:
    with _running(task_context, "load_flights") as context:
        return load_flights(str(flight_csv), spark=spark, context=context)


@pytest.fixture(scope="session")
def features(spark, loaded, task_context) -> TableRef:
    with _running(task_context, "build_features") as context:
        return build_features(loaded, spark=spark, context=context)


@pytest.fixture(scope="session")
def tracking(tmp_path_factory):
    """An MLflow store of its own with an open run; yields the run's id."""
    import mlflow

    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    experiment = mlflow.create_experiment("sample", artifact_location=str(folder / "artifacts"))
    with mlflow.start_run(experiment_id=experiment) as run:
        yield run.info.run_id
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="session")
def demo(loaded, features, tracking, ray_cluster, task_context) -> Demo:
    """The three tasks after Spark, with few and flat trees."""
    settings = TreeSettings(rounds=30, max_depth=4, learning_rate=0.2)
    with _running(task_context, "train_delay_model") as context:
        model = train_delay_model(features, **asdict(settings), context=context)
    with _running(task_context, "score_flights") as context:
        predictions = score_flights(features, model, context=context)
    with _running(task_context, "report_delays") as context:
        inputs = {**loaded, "features": features}
        report = report_delays(inputs, model, predictions, context=context)
    return Demo(loaded, features, model, predictions, report, tracking, settings)
