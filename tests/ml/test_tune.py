"""One study on each backend, with real workers that fail, hang and die."""

from __future__ import annotations

import os
import signal
import time

import optuna
import psutil
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from headrace import ml
from headrace.exceptions import DataTooLargeError, MlRequestError, NestedLayersError

SPACE = {
    "x": FloatDistribution(-10, 10),
    "depth": IntDistribution(1, 8),
    "kind": CategoricalDistribution(["a", "b"]),
}
BACKENDS = [
    "local",
    pytest.param("spark", marks=pytest.mark.spark),
    pytest.param("ray", marks=pytest.mark.ray),
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param != "local":
        request.getfixturevalue({"spark": "spark", "ray": "ray_cluster"}[request.param])
    return request.param


def bowl(trial):
    p = trial.params
    return (p["x"] - 2) ** 2 + p["depth"] + (p["kind"] == "b")


@pytest.fixture(scope="module")
def expected():
    return ml.tune(
        bowl, SPACE, n_trials=8, parallelism=2, seed=3, deterministic=True, backend="local"
    )


def test_a_seed_gives_the_same_study_on_each_backend(backend, expected):
    found = ml.tune(
        bowl, SPACE, n_trials=8, parallelism=2, seed=3, deterministic=True, backend=backend
    )
    assert [trial.params for trial in found.study.trials] == [
        trial.params for trial in expected.study.trials
    ]
    assert found.best_params == expected.best_params
    assert found.stopped_by == "trials"


def test_one_worker_with_a_seed_does_what_optuna_alone_does():
    found = ml.tune(bowl, SPACE, n_trials=14, parallelism=1, seed=5, backend="local")
    alone = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5))
    for _ in range(14):
        trial = alone.ask(SPACE)
        alone.tell(trial, bowl(trial))
    assert found.best_params == alone.best_params


def test_a_lost_worker_is_told_and_its_trial_tried_again(backend, tmp_path):
    def dies_once(trial):
        mark = tmp_path / "died"
        if trial.number == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return trial.params["x"] ** 2

    found = ml.tune(
        dies_once, {"x": SPACE["x"]}, n_trials=4, parallelism=1, retries_of_lost=1, backend=backend
    )
    lost = found.study.trials[1]
    assert lost.state.name == "FAIL"
    assert (
        "killed" in lost.user_attrs["headrace.lost"]
        or "signal 9" in lost.user_attrs["headrace.lost"]
    )
    [again] = [t for t in found.study.trials if t.user_attrs.get("headrace.retry_of") == 1]
    assert again.params == lost.params
    assert found.counts() == {"complete": 4, "pruned": 0, "fail": 1}


def test_the_deadline_stops_trials_that_hang_and_gives_a_clear_answer(backend, tmp_path):
    def hangs(trial):
        (tmp_path / str(os.getpid())).touch()
        while True:
            time.sleep(0.2)

    found = ml.tune(hangs, SPACE, timeout_s=4, parallelism=1, backend=backend)
    assert found.best is None
    assert found.stopped_by == "deadline"
    assert "No trial finished" in str(found)
    assert not [trial for trial in found.study.trials if not trial.state.is_finished()]
    workers = [int(path.name) for path in tmp_path.iterdir()]
    until = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in workers if psutil.pid_exists(pid)]


def test_failures_in_a_row_end_the_study_with_the_users_own_error():
    def fails(trial):
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column") as caught:
        ml.tune(
            fails, SPACE, n_trials=20, parallelism=1, max_consecutive_failures=3, backend="local"
        )
    assert "Raised in trial 0" in caught.value.__notes__[0]


def test_a_callback_and_a_trial_can_stop_the_study():
    def after_three(study, trial):
        if trial.number == 2:
            study.stop()

    found = ml.tune(
        bowl, SPACE, n_trials=20, parallelism=1, callbacks=[after_three], backend="local"
    )
    assert len(found.study.trials) == 3
    assert found.stopped_by == "stop"

    def stops(trial):
        trial.study.stop()
        return 1.0

    assert len(ml.tune(stops, SPACE, n_trials=9, parallelism=1, backend="local").study.trials) == 1


def test_trials_are_pruned_by_what_other_workers_reported():
    def steps(trial):
        x = trial.suggest_float("x", 0, 1)
        for step in range(3):
            trial.report(x if trial.number < 6 else x + 100, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    found = ml.tune(
        steps, n_trials=10, parallelism=2, backend="local", pruner=optuna.pruners.MedianPruner(4)
    )
    assert found.counts()["pruned"] >= 3
    assert found.counts()["fail"] == 0


def test_a_slow_trial_does_not_hold_up_the_others(tmp_path):
    def objective(trial):
        if trial.number == 0:
            while len(list(tmp_path.iterdir())) < 5:  # ends once the other worker has done five
                time.sleep(0.01)
        else:
            (tmp_path / str(trial.number)).touch()
        return 1.0

    found = ml.tune(objective, SPACE, n_trials=6, parallelism=2, timeout_s=120, backend="local")
    assert found.counts()["complete"] == 6


def test_data_reaches_a_worker_once_and_too_much_is_refused(backend):
    def reads(trial):
        trial.set_user_attr("id", id(trial.data))
        return float(sum(trial.data))

    found = ml.tune(reads, SPACE, n_trials=3, parallelism=1, data=[1, 2, 3], backend=backend)
    assert found.best_value == 6
    assert len({trial.user_attrs["id"] for trial in found.study.trials}) == 1
    with pytest.raises(DataTooLargeError, match="write_arrow"):
        ml.tune(reads, SPACE, n_trials=3, data=b"x" * 2_000_000, max_data_mib=1, backend=backend)


def test_a_study_goes_on_after_its_driver_was_interrupted(tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"

    def interrupt(study, trial):
        if trial.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ml.tune(
            bowl, SPACE, n_trials=6, parallelism=1, name="s", storage=url, callbacks=[interrupt],
            backend="local",
        )  # fmt: skip
    with pytest.raises(MlRequestError, match="already"):
        ml.tune(bowl, SPACE, n_trials=6, name="s", storage=url, backend="local")
    found = ml.tune(
        bowl, SPACE, n_trials=6, parallelism=1, name="s", storage=url, resume=True, backend="local"
    )
    assert found.counts()["complete"] == 6


def test_every_trial_is_a_run_below_the_study_and_none_is_left_open(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")

    def objective(trial):
        import mlflow

        mlflow.log_metric("own", trial.number)
        trial.report(1.0, 0)
        if trial.number == 1:
            raise ValueError("bad luck")
        return bowl(trial)

    try:
        found = ml.tune(objective, SPACE, n_trials=4, parallelism=1, backend="local", track=True)
        client = mlflow.MlflowClient()
        parent = client.get_run(found.mlflow_run_id)
        assert parent.info.status == "FINISHED"
        assert parent.data.metrics["best_value"] == found.best_value
        runs = client.search_runs(
            [parent.info.experiment_id],
            f"tags.`mlflow.parentRunId` = '{found.mlflow_run_id}'",
        )
        runs = {int(run.data.tags["trial"]): run for run in runs}
        assert {n: run.info.status for n, run in runs.items()} == {
            0: "FINISHED", 1: "FAILED", 2: "FINISHED", 3: "FINISHED",
        }  # fmt: skip
        assert "bad luck" in runs[1].data.tags["headrace.error"]
        assert runs[2].data.metrics["own"] == 2
        assert set(runs[0].data.params) == set(SPACE)
        plots = [item.path for item in client.list_artifacts(found.mlflow_run_id, "plots")]
        assert {"plots/history.png", "plots/slice.png"} <= set(plots)
    finally:
        mlflow.set_tracking_uri(before)


def test_mlflow_keeps_a_study_that_goes_on_after_an_interrupt(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")

    def interrupt(study, trial):
        if trial.number == 1:
            raise KeyboardInterrupt

    options = {
        "n_trials": 4,
        "parallelism": 1,
        "name": "s",
        "storage": "mlflow",
        "backend": "local",
    }
    try:
        with pytest.raises(KeyboardInterrupt):
            ml.tune(bowl, SPACE, callbacks=[interrupt], **options)
        found = ml.tune(bowl, SPACE, resume=True, **options)
        assert found.counts()["complete"] == 4
        run = mlflow.MlflowClient().get_run(found.mlflow_run_id)
        assert run.info.status == "FINISHED"
        assert len(mlflow.search_runs([run.info.experiment_id])) == 5
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.spark
def test_a_study_inside_a_spark_function_is_refused(spark):
    def inner(batches):
        import pandas as pd

        for _ in batches:
            try:
                ml.tune(bowl, SPACE, n_trials=1, backend="local")
            except NestedLayersError as error:
                yield pd.DataFrame({"text": [str(error)]})

    [row] = spark.range(1).repartition(1).mapInPandas(inner, "text string").collect()
    assert "started inside a spark worker" in row.text


@pytest.mark.ray
def test_a_study_inside_a_ray_task_is_refused(ray_cluster):
    import ray

    @ray.remote
    def inner():
        try:
            ml.tune(bowl, SPACE, n_trials=1, backend="local")
        except NestedLayersError as error:
            return str(error)

    assert "started inside a ray worker" in ray.get(inner.remote())
