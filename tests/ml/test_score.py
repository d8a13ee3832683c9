"""Batch inference on each engine: one signature, bad rows aside, one commit that says from what."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pyarrow as pa
import pytest

from headrace import ml
from headrace.context import TaskContext, use_context
from headrace.delta.arrow import read_arrow, write_arrow
from headrace.delta.history import load_history
from headrace.exceptions import (
    BadRowsError,
    MlRequestError,
    ModelSignatureError,
    WorkersLostError,
)

ENGINES = [
    "local",
    pytest.param("spark", marks=pytest.mark.spark),
    pytest.param("ray", marks=pytest.mark.ray),
]


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param != "local":
        request.getfixturevalue({"spark": "spark", "ray": "ray_cluster"}[request.param])
    return request.param


def log_model(tracked, predict, *, name, inputs, output="double"):
    """Register a model that calls `predict` with its rows."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    class Model(tracked.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return predict(model_input)

    outputs = None if output is None else Schema([ColSpec(output)])
    columns = [ColSpec(kind, column) for column, kind in inputs.items()]
    info = tracked.pyfunc.log_model(
        name=name,
        python_model=Model(),
        signature=ModelSignature(inputs=Schema(columns), outputs=outputs),
        pip_requirements=["mlflow"],
        registered_model_name=name,
    )
    return f"models:/{name}/{info.registered_model_version}"


@pytest.fixture
def doubler(tracked):
    def predict(rows):
        if (rows["x"] < 0).any():
            raise ValueError("x is negative")
        return rows["x"] * 2 + rows["count"]

    return log_model(tracked, predict, name="doubler", inputs={"x": "double", "count": "long"})


# A whole number that no float holds, beside a null: it comes out as it went in, or not at all.
LARGE = 2**60 + 1


@pytest.fixture
def rows(lake):
    table = pa.table({
        "id": pa.array([LARGE, None, *range(2, 500)], pa.int64()),
        "x": np.arange(500) / 2,
        "count": pa.array([1] * 500, pa.int32()),
        "note": ["a", None] * 250,
    })  # fmt: skip
    return write_arrow(table, "rows", key=())


def test_every_row_is_scored_and_what_is_kept_stays_as_it_was(engine, rows, doubler, tracked):
    found = ml.score(
        rows, doubler, to="scored", key="id", keep=["note"], batch_rows=64, backend=engine
    )
    scored = read_arrow(found.table).sort_by("prediction")
    assert scored.column_names == ["id", "note", "prediction"]
    assert scored["prediction"].to_pylist() == (np.arange(500) + 1.0).tolist()
    assert scored["id"].to_pylist() == [LARGE, None, *range(2, 500)]
    assert (found.bad_rows, found.bad_table, found.model) == (0, None, doubler)


def test_bad_rows_go_to_a_table_of_their_own_with_the_models_error(engine, rows, doubler, lake):
    bad = read_arrow(rows).to_pandas()
    bad.loc[[3, 300], "x"] = -1.0
    bad["count"] = bad["count"].astype("Int32")
    bad.loc[7, "count"] = None
    write_arrow(bad, "rows", mode="overwrite", key=())
    found = ml.score("rows", doubler, to="scored", key="id", backend=engine)
    assert (found.bad_rows, found.table.row_count) == (3, 497)
    aside = {row["id"]: row for row in read_arrow(found.bad_table).to_pylist()}
    assert aside.keys() == {3, 7, 300}
    assert aside[3]["headrace_error"] == "ValueError: x is negative"
    assert json.loads(aside[300]["headrace_row"])["x"] == -1.0
    assert "count" in aside[7]["headrace_error"]

    with pytest.raises(BadRowsError, match="ValueError: x is negative"):
        ml.score("rows", doubler, to="none", key="id", max_bad_rows=1, backend=engine)
    with pytest.raises(Exception, match="none"):
        read_arrow("none")


def test_a_run_that_is_tried_again_writes_once_and_the_commits_say_from_what(
    engine, rows, doubler, lake, tracked
):
    task = {"run_id": f"run-{engine}", "task": "score", "lake": lake.lake}
    write_arrow(
        pa.table({"id": [1], "x": [-5.0], "count": pa.array([1], pa.int32())}), "rows", key=()
    )
    for attempt in (1, 2):
        with use_context(TaskContext(**task, attempt=attempt)):
            found = ml.score("rows", doubler, to="out", key="id", mode="append", backend=engine)
    assert (found.table.version, found.table.row_count, found.bad_table.row_count) == (0, 500, 1)
    for table in (found.table, found.bad_table):
        commit = load_history(table.uri)[0]
        assert commit.models == [doubler]
        assert commit.inputs == ["rows@v1"]


def test_the_signature_is_checked_before_a_row_is_scored(rows, tracked):
    engine = "local"  # what follows is the driver's

    def never(frame):
        raise AssertionError

    wanted = {"x": "float", "Count": "long", "carrier": "string", "note": "string"}
    uri = log_model(tracked, never, name="never", inputs=wanted)
    with pytest.raises(ModelSignatureError) as caught:
        ml.score(rows, uri, to="out", key="id", backend=engine)
    assert caught.value.problems == [
        "x is double, the model takes float",
        "there is no column Count (but count)",
        "there is no column carrier",
    ]


def test_a_model_by_alias_is_fixed_once_and_predicts_other_types(rows, tracked):
    engine = "local"  # what follows is the driver's

    def words(frame):
        return ["late" if x > 10 else None for x in frame["x"]]

    uri = log_model(tracked, words, name="words", inputs={"x": "double"}, output=None)
    tracked.MlflowClient().set_registered_model_alias("words", "best", uri.rpartition("/")[2])
    found = ml.score(
        rows, "models:/words@best", to="words", key="id", returns="string", filter="x < 20",
        prediction="word", backend=engine,
    )  # fmt: skip
    assert found.model == uri
    assert (
        sorted(read_arrow(found.table)["word"].to_pylist(), key=str) == [None] * 21 + ["late"] * 19
    )


def test_a_merge_replaces_the_predictions_of_rows_that_are_there(engine, lake, doubler):
    table = pa.table({"id": [1, 2], "x": [1.0, 2.0], "count": pa.array([1, 1], pa.int32())})
    write_arrow(table, "rows", key=())
    ml.score("rows", doubler, to="merged", key="id", backend=engine)
    other = pa.table({"id": [2, 3], "x": [5.0, 6.0], "count": pa.array([1, 1], pa.int32())})
    write_arrow(other, "rows", mode="overwrite", key=())
    found = ml.score("rows", doubler, to="merged", key="id", mode="merge", backend=engine)
    rows = {row["id"]: row["prediction"] for row in read_arrow(found.table).to_pylist()}
    assert rows == {1: 3.0, 2: 11.0, 3: 13.0}
    none = ml.score("rows", doubler, to="none", key="id", filter="x > 99", backend=engine)
    assert read_arrow(none.table).schema.names == ["id", "prediction"]
    assert none.table.row_count == 0


@pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)
def test_a_worker_that_is_killed_is_replaced_and_no_row_comes_twice(
    engine, rows, tracked, tmp_path
):
    def predict(frame):
        mark = tmp_path / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return frame["x"]

    uri = log_model(tracked, predict, name="dies", inputs={"x": "double"})
    found = ml.score(rows, uri, to="out", key="id", batch_rows=100, backend=engine)
    assert found.table.row_count == 500
    assert len(set(read_arrow(found.table)["id"].to_pylist())) == 500


@pytest.mark.parametrize("engine", ENGINES[1:2], indirect=True)
def test_a_model_that_kills_each_worker_ends_the_call_with_the_reason(engine, rows, tracked):
    def predict(frame):
        os.kill(os.getpid(), signal.SIGKILL)

    uri = log_model(tracked, predict, name="kills", inputs={"x": "double"})
    with pytest.raises(WorkersLostError, match=r"ml\.score lost .* killed or crashed"):
        ml.score(rows, uri, to="out", key="id", backend=engine)


def test_requests_that_mean_nothing_are_refused(rows, doubler, tracked):
    engine = "local"  # what follows is the driver's
    with pytest.raises(MlRequestError, match="no model"):
        ml.score(rows, "models:/nobody/1", to="out", key="id", backend=engine)
    with pytest.raises(MlRequestError, match="there twice"):
        ml.score(rows, doubler, to="out", key="id", prediction="id", backend=engine)
    with pytest.raises(MlRequestError, match="no type"):
        ml.score(rows, doubler, to="out", key="id", returns="text", backend=engine)
    with tracked.start_run():
        info = tracked.pyfunc.log_model(
            name="bare", python_model=lambda model_input: model_input, pip_requirements=["mlflow"]
        )
    with pytest.raises(MlRequestError, match="no signature"):
        ml.score(rows, info.model_uri, to="out", key="id", backend=engine)


@pytest.mark.spark
def test_two_tables_are_worked_on_group_by_group_with_a_cogroup(spark):
    """As docs/how-to/train-per-group.md shows it."""
    import pandas as pd

    flights = spark.createDataFrame(
        [("AA", 1.0), ("AA", 3.0), ("DL", 5.0)], "carrier string, x double"
    )
    goals = spark.createDataFrame([("AA", 1.5), ("UA", 9.0)], "carrier string, goal double")

    def compare(key, left, right):
        goal = right["goal"].iloc[0] if len(right) else None
        mean = left["x"].mean() if len(left) else None
        return pd.DataFrame({"carrier": [key[0]], "mean": [mean], "goal": [goal]})

    both = flights.groupBy("carrier").cogroup(goals.groupBy("carrier"))
    found = both.applyInPandas(compare, "carrier string, mean double, goal double").collect()
    assert {tuple(row) for row in found} == {("AA", 2.0, 1.5), ("DL", 5.0, None), ("UA", None, 9.0)}
