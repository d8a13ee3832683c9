"""Studies whose trials run in Ray Tune or in MLflow's MlflowSparkStudy."""

from __future__ import annotations

import os
import signal
import time

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from headrace import ml
from headrace.context import TaskContext, use_context
from headrace.exceptions import MlRequestError
from headrace.ml.spaces import read_space
from headrace.ml.tune_checks import check_ray_tune

SPACE = {"x": FloatDistribution(-10, 10), "depth": IntDistribution(1, 8)}


@pytest.fixture
def lake(tmp_path):
    with use_context(TaskContext(run_id="tune", lake=str(tmp_path / "lake"), cores=2)) as context:
        yield context


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    yield mlflow.MlflowClient()
    mlflow.set_tracking_uri(before)


def bowl(trial):
    return (trial.params["x"] - 2) ** 2 + trial.params["depth"]


@pytest.mark.ray
def test_asha_ends_bad_trials_and_each_end_is_told_for_what_it_is(lake, ray_cluster):
    from ray.tune.schedulers import ASHAScheduler

    def steps(trial):
        if trial.number == 1:
            raise KeyError("no such column")
        if trial.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        assert trial.data == "data"
        for step in range(6):
            trial.report(trial.params["x"] ** 2 + (1_000 if trial.number >= 5 else 0), step)
        trial.set_user_attr("seen", step)
        return trial.params["x"] ** 2

    found = ml.tune(
        steps, SPACE, n_trials=8, parallelism=2, backend="ray_tune", seed=1, data="data",
        scheduler=ASHAScheduler(max_t=100, grace_period=2, reduction_factor=2),
    )  # fmt: skip
    trials = found.study.trials
    assert found.stopped_by == "trials"
    assert len(trials) == 8
    assert "no such column" in trials[1].user_attrs["headrace.error"]
    assert "killed" in trials[2].user_attrs["headrace.lost"]
    assert {trial.state.name for trial in trials[5:]} == {"PRUNED"}
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert trials[0] in complete
    assert list(trials[0].intermediate_values) == list(range(6))
    assert trials[0].user_attrs["seen"] == 5
    assert found.best_value == min(trial.params["x"] ** 2 for trial in complete)


@pytest.mark.ray
def test_the_deadline_ends_a_hanging_trial_of_ray_tune(lake, ray_cluster):
    def hangs(trial):
        while True:
            time.sleep(0.2)

    found = ml.tune(hangs, SPACE, n_trials=2, timeout_s=8, parallelism=1, backend="ray_tune")
    assert found.best is None
    assert found.stopped_by == "deadline"
    assert not [trial for trial in found.study.trials if not trial.state.is_finished()]


@pytest.mark.ray
def test_failures_in_a_row_in_ray_tune_end_with_the_users_own_error(lake, ray_cluster):
    def fails(trial):
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column") as caught:
        ml.tune(
            fails, SPACE, n_trials=9, parallelism=1, max_consecutive_failures=2, backend="ray_tune"
        )
    assert "Raised in trial 0" in caught.value.__notes__[0]


@pytest.mark.spark
def test_a_study_of_mlflow_stops_when_asked_and_its_runs_are_ended(spark, tracking):
    import mlflow

    def objective(trial):
        assert trial.data == [1, 2]
        if trial.number == 0:
            raise ValueError("bad luck")
        if trial.number == 2:
            trial.study.stop()
        return (trial.params["x"] - 2) ** 2

    found = ml.tune(
        objective, SPACE, n_trials=5, parallelism=1, backend="mlflow_spark", data=[1, 2], seed=1
    )
    trials = sorted(found.study.trials, key=lambda trial: trial.number)
    assert found.stopped_by == "stop"
    assert [trial.state.name for trial in trials] == [
        "FAIL", "COMPLETE", "COMPLETE", "PRUNED", "PRUNED",
    ]  # fmt: skip
    assert "bad luck" in trials[0].user_attrs["headrace.error"]
    assert "headrace.stopped" in trials[3].user_attrs
    experiment = tracking.get_run(found.mlflow_run_id).info.experiment_id
    runs = mlflow.search_runs([experiment])
    assert "RUNNING" not in set(runs["status"])
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.spark
def test_the_deadline_ends_a_study_of_mlflow_whose_trial_hangs(spark, tracking, tmp_path):
    def hangs(trial):
        (tmp_path / f"{trial.number}").touch()
        while True:
            time.sleep(0.2)

    found = ml.tune(
        hangs, SPACE, n_trials=2, timeout_s=15, parallelism=1, backend="mlflow_spark", name="hangs"
    )
    assert found.best is None
    assert found.stopped_by == "deadline"
    assert not [trial for trial in found.study.trials if not trial.state.is_finished()]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_trials": None, "timeout_s": 9}, "needs n_trials"),
        ({"storage": "sqlite://"}, "can't keep its study"),
        ({"callbacks": [print]}, "callbacks does not go"),
        ({"backend": "spark", "scheduler": object()}, "scheduler does not go"),
    ],
)
def test_what_another_driver_can_not_do_is_refused(wrong, words, spark):
    with pytest.raises(MlRequestError, match=words):
        ml.tune(bowl, SPACE, **{"n_trials": 4, "backend": "mlflow_spark", **wrong})


@pytest.mark.ray
@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"retries_of_lost": 1}, "retries_of_lost does not go"), ({"space": None}, "needs a space")],
)
def test_what_ray_tune_can_not_do_is_refused(wrong, words, ray_cluster):
    with pytest.raises(MlRequestError, match=words):
        ml.tune(bowl, **{"space": SPACE, "n_trials": 4, "backend": "ray_tune", **wrong})


def test_a_scheduler_that_changes_parameters_is_refused():
    from ray.tune.schedulers import PopulationBasedTraining

    scheduler = PopulationBasedTraining(hyperparam_mutations={"x": [1.0, 2.0]})
    with pytest.raises(MlRequestError, match="PopulationBasedTraining"):
        check_ray_tune(space=read_space(SPACE), given={"scheduler": scheduler})
