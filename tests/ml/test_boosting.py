"""Trees from several workers: the same on each engine, and after a worker was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from headrace import ml
from headrace.context import TaskContext, use_context
from headrace.delta.arrow import write_arrow
from headrace.exceptions import MlRequestError, NestedLayersError
from headrace.ml.boosted import Progress, encode
from headrace.ml.layers import inside
from headrace.ml.ray_boosting import _LostWorkerError, _raise_cause

CATEGORIES = {"kind": ["a", "b", "c"]}
PARAMS = {"max_depth": 3, "eta": 0.3, "seed": 1}
# XGBoost's histograms have other borders where the rows lie otherwise on the workers.
TOLERANCE = 0.02


def make_rows(count, seed):
    import pandas as pd

    random = np.random.default_rng(seed)
    rows = pd.DataFrame({
        "x": random.normal(size=count),
        "z": random.integers(0, 50, size=count),
        "kind": random.choice(["a", "b", "c"], size=count),
    })  # fmt: skip
    effect = rows["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0})
    noise = random.normal(scale=0.3, size=count)
    return rows.assign(y=3 * rows["x"] + 0.1 * rows["z"] + effect + noise)


@pytest.fixture
def here(tmp_path):
    context = TaskContext(run_id="boosting", lake=str(tmp_path / "lake"), cores=2, workers=2)
    with use_context(context):
        yield context


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    import pyarrow as pa

    with use_context(TaskContext(lake=str(tmp_path_factory.mktemp("lake")))):
        # An odd number of rows: two equal shares would leave one out.
        return [
            write_arrow(pa.Table.from_pandas(make_rows(count, count)), name, mode="overwrite")
            for name, count in (("train", 801), ("validation", 401))
        ]


def train(tables, *, function=ml.train_xgboost, **options):
    settings = {"params": PARAMS, "rounds": 30, "categories": CATEGORIES, **options}
    if function is ml.train_xgboost:
        settings.setdefault("backend", "ray")
    return function(tables[0], validation=tables[1], label="y", **settings)


def error_of(model, rows):
    return float(np.sqrt(np.mean((model.predict(rows) - rows["y"]) ** 2)))


def test_the_best_round_and_the_end_are_those_of_the_validation():
    progress = Progress(patience=2, more_is_better=True)
    for value in (0.5, 0.7, 0.6):
        progress.add([("train", "auc", 1.0), ("validation", "auc", value)])
    assert (progress.best_round(), progress.is_over()) == (2, False)
    progress.add([("validation", "auc", 0.7)])
    assert (progress.best_round(), progress.is_over()) == (2, True)
    assert Progress(rounds=4).best_round() == 4


def test_a_text_without_named_values_is_refused_and_an_unknown_value_is_missing():
    import pandas as pd

    rows = pd.DataFrame({"kind": ["b", "new", None]})
    found = encode(rows, ["kind"], CATEGORIES)
    assert found[0, 0] == 1
    assert np.isnan(found[1:, 0]).all()
    with pytest.raises(MlRequestError, match="'kind' has the type object"):
        encode(rows, ["kind"], {})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"params": {"nthread": 3}}, "nthread"),
        ({"params": {"device": "cuda"}}, "use_gpu="),
        ({"params": {"tree_method": "exact"}}, "not for several workers"),
        ({"params": {"objective": "rank:ndcg"}}, "rank:ndcg"),
        ({"early_stopping": 3}, "needs validation"),
        ({"workers": 3}, "more than the cluster has cores"),
        ({"use_gpu": True}, "needs a GPU"),
        ({"label": "nothing"}, "no column 'nothing'"),
        ({}, "'kind' has the type string"),
    ],
)
@pytest.mark.ray
def test_what_can_not_work_is_refused_before_a_worker_starts(
    wrong, words, tables, here, ray_cluster
):
    with pytest.raises(MlRequestError, match=words):
        ml.train_xgboost(tables[0], **{"label": "y", "backend": "ray", **wrong})


@pytest.mark.ray
def test_a_training_inside_a_trial_is_refused(tables, here, ray_cluster):
    with inside("tuning trial"), pytest.raises(NestedLayersError):
        train(tables)


@pytest.fixture(scope="module")
def on_ray(tables, ray_cluster, tmp_path_factory):
    """A model of two workers that was never interrupted."""
    lake = str(tmp_path_factory.mktemp("whole"))
    with use_context(TaskContext(run_id="whole", lake=lake, cores=2, workers=2)):
        return train(tables)


@pytest.mark.ray
def test_two_workers_build_what_one_process_builds(tables, on_ray):
    import xgboost

    rows, test = make_rows(801, 801), make_rows(401, 401)
    features = ["x", "z", "kind"]
    coded = xgboost.DMatrix(
        encode(rows, features, CATEGORIES), rows["y"], feature_types=["q", "q", "c"],
        enable_categorical=True,
    )  # fmt: skip
    alone = xgboost.train(PARAMS, coded, num_boost_round=30)
    wanted = alone.predict(
        xgboost.DMatrix(
            encode(test, features, CATEGORIES), feature_types=["q", "q", "c"],
            enable_categorical=True,
        )
    )  # fmt: skip
    alone_error = float(np.sqrt(np.mean((wanted - test["y"]) ** 2)))
    assert error_of(on_ray, test) == pytest.approx(alone_error, rel=TOLERANCE)
    assert on_ray.rows == {"train": 801, "validation": 401}
    assert on_ray.history["validation"]["rmse"][-1] == pytest.approx(error_of(on_ray, test))
    assert len(on_ray.history["train"]["rmse"]) == on_ray.best_round == 30


@pytest.mark.ray
def test_a_killed_worker_costs_the_rounds_since_the_last_checkpoint(tables, here, on_ray, tmp_path):
    def die_once(number, scores):
        mark = tmp_path / "died"
        if number == 25 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with (tmp_path / "rounds").open("a") as file:
            file.write(f"{number} {scores['validation']['rmse']}\n")

    found = train(tables, checkpoint_every=10, on_round=die_once)
    assert found.workers_lost == 1
    assert found.history["validation"]["rmse"] == pytest.approx(
        on_ray.history["validation"]["rmse"], rel=1e-4
    )
    test = make_rows(50, 5)
    assert found.predict(test) == pytest.approx(on_ray.predict(test), rel=1e-3, abs=1e-3)
    rounds = [int(line.split()[0]) for line in (tmp_path / "rounds").read_text().splitlines()]
    # Both workers, once; Ray may not have seen the checkpoint of round 20 yet.
    assert rounds.count(1) == rounds.count(30) == 2
    assert rounds.count(22) == 4


def _failed(*failures):
    """What Ray Train raises when these are its workers' errors, in their order."""
    found = RuntimeError("Training failed due to worker errors")
    found.worker_failures = dict(enumerate(failures))
    return found


def test_a_killed_worker_is_told_from_one_that_lost_it_and_from_the_users_error():
    from ray.train.v2._internal.exceptions import (
        UserExceptionWithTraceback,
        WorkerHealthCheckFailedError,
    )

    torn = type("XGBoostError", (ValueError,), {})("[10:00] allreduce: Connection reset by peer")
    dead = WorkerHealthCheckFailedError("failed", failure=RuntimeError("The actor died."))
    with pytest.raises(_LostWorkerError, match="worker 1: The actor died"):
        _raise_cause(_failed(torn, dead))
    with pytest.raises(_LostWorkerError, match="worker 0 lost another one"):
        _raise_cause(_failed(torn))
    own = KeyError("no such score")
    for told in (own, UserExceptionWithTraceback(own, "line 1")):
        with pytest.raises(KeyError, match="no such score") as caught:
            _raise_cause(_failed(torn, told))
    assert "Raised in worker 1 of the training:\nline 1" in caught.value.__notes__[-1]


@pytest.mark.ray
def test_a_training_goes_on_after_its_driver_was_lost(tables, here, ray_cluster):
    def fail(number, scores):
        if number == 15:
            raise RuntimeError("the end of the driver")

    options = {"checkpoint_every": 5, "checkpoints": "kept", "rounds": 20}
    with pytest.raises(RuntimeError, match="the end of the driver") as caught:
        train(tables, on_round=fail, **options)
    assert "of the training" in caught.value.__notes__[0]
    seen = Path(here.lake, "seen")
    found = train(tables, on_round=lambda number, _: _note(seen, number), **options)
    assert len(found.history["validation"]["rmse"]) == 20
    with pytest.raises(MlRequestError, match="another training"):
        train(tables, **{**options, "params": {"max_depth": 2}})
    # Ray has seen the checkpoint of round 10, as that of 15 was taken.
    rounds = {int(line) for line in seen.read_text().splitlines()}
    assert set(range(16, 21)) <= rounds <= set(range(11, 21))


def _note(path, number):
    with path.open("a") as file:
        file.write(f"{number}\n")


@pytest.mark.ray
def test_lightgbm_stops_early_and_its_workers_agree(tables, here, ray_cluster):
    import lightgbm

    found = train(
        tables,
        function=ml.train_lightgbm,
        params={"num_leaves": 8, "learning_rate": 0.5, "seed": 1},
        rounds=300,
        early_stopping=5,
        checkpoint_every=20,
    )
    values = found.history["validation"]["l2"]
    assert found.rows == {"train": 801, "validation": 401}
    assert len(values) == found.best_round + 5 < 300
    assert values[found.best_round - 1] == min(values)
    test = make_rows(401, 401)
    assert error_of(found, test) ** 2 == pytest.approx(min(values), rel=1e-3)
    features = ["x", "z", "kind"]
    alone = lightgbm.train(
        {"num_leaves": 8, "learning_rate": 0.5, "seed": 1, "verbosity": -1},
        lightgbm.Dataset(
            encode(make_rows(801, 801), features, CATEGORIES), make_rows(801, 801)["y"],
            categorical_feature=[2],
        ),
        num_boost_round=found.best_round,
    )  # fmt: skip
    wanted = alone.predict(encode(test, features, CATEGORIES))
    assert min(values) == pytest.approx(np.mean((wanted - test["y"]) ** 2), rel=0.2)


@pytest.mark.spark
@pytest.mark.ray
def test_sparks_estimator_builds_the_same_on_the_same_rows(tables, here, on_ray, spark):
    found = train(tables, backend="spark", workers=2)
    ours = on_ray.history["validation"]["rmse"][-1]
    assert found.history["validation"]["rmse"][-1] == pytest.approx(ours, rel=TOLERANCE)
    assert error_of(found, make_rows(401, 401)) == pytest.approx(ours, rel=TOLERANCE)
    assert found.rows == on_ray.rows
    assert found.features == on_ray.features


@pytest.mark.spark
def test_more_workers_than_slots_are_refused_at_once_on_spark(tables, here, spark):
    with pytest.raises(MlRequestError, match="Spark has slots"):
        train(tables, backend="spark", workers=3)


@pytest.mark.spark
def test_a_row_without_a_label_is_refused_on_spark(tables, here, spark):
    rows = spark.createDataFrame([(1.0, 2.0), (2.0, None)], "x double, y double")
    with pytest.raises(MlRequestError, match="no finite number in its label"):
        ml.train_xgboost(rows, label="y", backend="spark", workers=1)
