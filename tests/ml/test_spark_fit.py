"""Cross-validation of pyspark.ml: what its own fit gives, with a run for each fold and map."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import ml
from headrace.exceptions import MlRequestError, NestedLayersError
from headrace.ml.layers import inside
from tests.ml.spark_grid import make_frame, make_validator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    yield mlflow.MlflowClient()
    mlflow.set_tracking_uri(before)


def children(client, run_id):
    parent = client.get_run(run_id)
    wanted = f"tags.`mlflow.parentRunId` = '{run_id}'"
    return parent, client.search_runs([parent.info.experiment_id], wanted)


@pytest.mark.spark
def test_each_fold_with_each_map_is_a_run_and_the_metrics_are_sparks_own(spark, tracking):
    validator, frame = make_validator(), make_frame(spark)
    found = ml.fit_spark(validator, frame, parallelism=2, track=True)
    wanted = validator.fit(frame)
    assert found.metrics == pytest.approx(wanted.avgMetrics)
    assert found.model.stdMetrics == pytest.approx(wanted.stdMetrics)
    assert found.best == 0
    assert found.best_params == {"LinearRegression.regParam": 0.0}
    parent, runs = children(tracking, found.mlflow_run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["best_rmse"] == found.metrics[0]
    told = {
        (int(run.data.tags["fold"]), int(run.data.tags["param_map"])): run.data.metrics["rmse"]
        for run in runs
    }
    assert told == {
        (fold, place): found.folds[place][fold] for fold in range(2) for place in range(3)
    }
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.spark
def test_a_train_validation_split_chooses_what_spark_would_choose(spark):
    validator, frame = make_validator("TrainValidationSplit", trainRatio=0.7), make_frame(spark)
    found = ml.fit_spark(validator, frame)
    assert found.metrics == pytest.approx(validator.fit(frame).validationMetrics)
    assert found.model.transform(frame).count() == 200


@pytest.mark.spark
def test_an_error_says_its_fold_and_parameters_and_no_run_stays_open(spark, tracking):
    import mlflow

    validator = make_validator()
    validator.getEvaluator().setLabelCol("nothing")
    with mlflow.start_run() as outer, pytest.raises(Exception, match="nothing") as caught:
        ml.fit_spark(validator, make_frame(spark), parallelism=1, track=True)
    assert "Raised in fold 0 with {'LinearRegression.regParam': 0.0}" in caught.value.__notes__[0]
    _, [whole] = children(tracking, outer.info.run_id)
    assert whole.info.status == "FAILED"
    _, runs = children(tracking, whole.info.run_id)
    assert {run.info.status for run in runs} == {"FAILED"}


@pytest.mark.spark
def test_a_fit_inside_a_trial_or_without_its_parts_is_refused(spark):
    from pyspark.ml.tuning import CrossValidator

    with inside("tuning trial"), pytest.raises(NestedLayersError):
        ml.fit_spark(make_validator(), make_frame(spark))
    with pytest.raises(MlRequestError, match="has no estimator"):
        ml.fit_spark(CrossValidator(), make_frame(spark))


@pytest.mark.spark
def test_spark_connect_gives_the_same_and_what_needs_the_jvm_is_refused(spark, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.ml.connect_fit", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=ROOT,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert told, done.stderr[-3000:]
    found = json.loads(told[0].removeprefix("RESULT "))
    assert "connect" in found["kind"]
    assert found["rows"] == 200
    here = ml.fit_spark(make_validator(), make_frame(spark))
    assert found["metrics"] == pytest.approx(here.metrics)
    assert found["best"] == here.best
    pipeline, estimator = found["refused"]
    assert "SparkXGBRegressor does not run over Spark Connect" in pipeline
    assert "@ray_task" in pipeline
    assert "@ray_task" in estimator
