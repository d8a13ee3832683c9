"""Per-group training on each engine: real workers that fail and die, one model out of many."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import ml
from headrace.delta.arrow import read_arrow, write_arrow
from headrace.exceptions import GroupsTooLargeError, MlRequestError
from headrace.ml.group_log import fetch_pack
from tests.ml.line_model import Line, fit_line

ENGINES = [
    "local",
    pytest.param("spark", marks=pytest.mark.spark),
    pytest.param("ray", marks=pytest.mark.ray),
]
SLOPES = {"AA": 1.0, "DL": 2.0, "UA": 3.0, "WN": 4.0}


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param != "local":
        request.getfixturevalue({"spark": "spark", "ray": "ray_cluster"}[request.param])
    return request.param


def train(table, engine, fit=fit_line, model="line", **options):
    return ml.train_per_group(
        table, by="carrier", fit=fit, model=model, features=["x"], target="y",
        backend=engine, **options,
    )  # fmt: skip


def results(found):
    rows = read_arrow(found.results).to_pylist()
    return {row["carrier"]: row for row in rows}


def test_each_group_has_a_model_and_one_model_routes_rows_to_them(engine, lines, tracked):
    import pandas as pd

    found = train(lines(SLOPES), engine)
    assert found.states["trained"] == 4
    assert {name: row["state"] for name, row in results(found).items()} == dict.fromkeys(
        SLOPES, "trained"
    )
    loaded = tracked.pyfunc.load_model(found.uri)
    frame = pd.DataFrame({"carrier": ["WN", "AA", "WN", "DL"], "x": [1.0, 1.0, 2.0, 5.0]})
    assert loaded.predict(frame) == pytest.approx([4, 1, 8, 10])
    inner = loaded.unwrap_python_model() if hasattr(loaded, "unwrapped") else loaded._model_impl
    assert inner.model("UA").facts["rows"] == 40
    assert inner.model("UA").facts["columns"] == ["carrier", "x", "y"]
    assert inner.model("UA").facts["layers"][-1] == "group"
    if engine == "spark":  # which left alone would have put these few rows into one partition
        assert len({inner.model(name).facts["partition"] for name in SLOPES}) == 4
    with pytest.raises(MlRequestError, match="No model for carrier=ZZ"):
        loaded.predict(frame.assign(carrier="ZZ"))
    # A model knows the columns that it needs, and one more or less row of a group is no matter.
    assert set(loaded.metadata.get_input_schema().input_names()) == {"carrier", "x"}
    assert len(loaded.predict(frame.iloc[:0])) == 0


def test_a_group_that_fails_and_one_that_kills_its_worker_are_rows_of_the_result(
    engine, lines, tracked
):
    import pandas as pd

    def fit(frame):
        carrier = frame["carrier"].iloc[0]
        if carrier == "DL":
            raise KeyError("no such airport")
        if carrier == "UA":
            os.kill(os.getpid(), signal.SIGKILL)
        return Line(frame)

    found = train(lines(SLOPES), engine, fit)
    assert found.states == {
        "trained": 2, "failed": 1, "killed": 1, "sampled": 0, "kept": 0, "too_large": 0,
    }  # fmt: skip
    rows = results(found)
    assert rows["DL"]["error"] == "KeyError: 'no such airport'"
    assert "in fit\nKeyError" in rows["DL"]["traceback"]
    assert rows["DL"]["rows"] == 40
    assert rows["UA"]["state"] == "killed"
    assert "killed" in rows["UA"]["error"]
    assert found.failed.keys() == {"carrier=DL", "carrier=UA"}
    loaded = tracked.pyfunc.load_model(found.uri)
    assert loaded.predict(pd.DataFrame({"carrier": ["AA"], "x": [2.0]})) == pytest.approx([2])


def test_a_worker_that_is_killed_once_costs_nothing(engine, lines, tracked, tmp_path):
    def fit(frame):
        mark = tmp_path / "died"
        if frame["carrier"].iloc[0] == "UA" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Line(frame)

    assert train(lines(SLOPES), engine, fit).states["trained"] == 4


def test_where_no_group_has_a_model_the_users_own_error_is_raised(lines, tracked):
    engine = "local"  # what follows is the driver's

    def fit(frame):
        raise ZeroDivisionError("nothing to learn")

    with pytest.raises(ZeroDivisionError, match="nothing to learn") as caught:
        train(lines(SLOPES), engine, fit)
    assert "Raised in group carrier=AA" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="fit returned None"):
        train(lines(SLOPES), engine, lambda frame: None)


def test_the_same_rows_in_other_files_and_another_order_train_nothing(engine, lines, tracked):
    name = f"same-{engine}"
    first = train(lines(SLOPES), engine, model=name)
    rows = read_arrow("lines")
    write_arrow(rows.take(list(range(rows.num_rows))[::-1]), "lines", mode="overwrite", key=())
    again = train("lines", engine, model=name, only_changed=True)
    assert (again.version, again.mlflow_run_id, again.states["kept"]) == (first.version, None, 4)

    write_arrow(rows.filter(pc.field("carrier") != "UA"), "lines", mode="overwrite", key=())
    fewer = train("lines", engine, model=name, only_changed=True)
    assert (fewer.version, fewer.states["kept"]) == (first.version + 1, 3)
    with fetch_pack(name, fewer.version) as pack:
        assert {key for (key,) in pack.entries} == {"AA", "DL", "WN"}


def test_an_appended_group_leaves_the_others_as_they_are(lines, tracked):
    engine = "local"  # what follows is the driver's
    import pandas as pd

    name = f"appended-{engine}"
    ref = lines(SLOPES)
    train(ref, engine, model=name)
    more = pa.table({"carrier": ["DL", "B6"], "x": [1.0, 1.0], "y": [9.0, 5.0]})
    write_arrow(more, "lines", key=())
    found = train("lines", engine, model=name, only_changed=True)
    assert {name: row["state"] for name, row in results(found).items()} == {
        "AA": "kept", "UA": "kept", "WN": "kept", "DL": "trained", "B6": "trained",
    }  # fmt: skip
    loaded = tracked.pyfunc.load_model(found.uri)
    frame = pd.DataFrame({"carrier": ["AA", "B6", "UA"], "x": [1.0, 1.0, 1.0]})
    assert loaded.predict(frame) == pytest.approx([1, 5, 3])

    def other_fit(frame):
        return Line(frame, other=True)

    assert train("lines", engine, other_fit, name, only_changed=True).states["trained"] == 5
    part = train("lines", engine, model=f"part-{engine}", filter="carrier IN ('AA', 'UA')")
    assert part.states["trained"] == 2


def test_groups_that_do_not_fit_are_named_sampled_iterated_or_have_all_to_themselves(
    engine, lake, tracked
):
    count = {"AA": 30_000, "DL": 50}
    carriers = np.repeat(list(count), list(count.values()))
    x = np.random.default_rng(1).normal(size=len(carriers))
    ref = write_arrow(pa.table({"carrier": carriers, "x": x, "y": 2 * x}), "lines", key=())
    memory = 2.0
    with pytest.raises(GroupsTooLargeError, match=r"carrier=AA \(30,000 rows, \d+ MiB\)"):
        train(ref, engine, memory_mib=memory)

    sampled = train(ref, engine, memory_mib=memory, on_large="sample", seed=3, model="large")
    row = results(sampled)["AA"]
    assert row["state"] == "sampled"
    assert 100 < row["trained_rows"] < 15_000
    with fetch_pack("large", sampled.version) as pack:
        slope, rows = pack.load(("AA",)).slope, pack.load(("AA",)).facts["rows"]
    assert (slope, rows) == (pytest.approx(2), row["trained_rows"])

    def fit_batches(batches):
        sizes, total = [], 0.0
        for batch in batches:
            sizes.append(len(batch))
            total += batch.y.sum()
        return {"sizes": sizes, "total": total}

    train(
        ref, engine, memory_mib=memory, on_large="iterate", fit_batches=fit_batches, model="large"
    )
    with fetch_pack("large", sampled.version + 1) as pack:
        found = pack.load(("AA",))
        assert isinstance(pack.load(("DL",)), Line)
    assert sum(found["sizes"]) == 30_000
    assert max(found["sizes"]) <= 10_000
    assert found["total"] == pytest.approx(2 * x[carriers == "AA"].sum())

    left = train(ref, engine, memory_mib=memory, on_large="leave", model="left")
    assert results(left)["AA"]["state"] == "too_large"
    # A task with a larger profile trains what was left, and only that.
    alone = train(ref, engine, memory_mib=20.0, on_large="alone", model="left", only_changed=True)
    assert (alone.states["trained"], alone.states["kept"]) == (1, 1)
    assert results(alone)["AA"]["trained_rows"] == 30_000


def test_ten_times_the_groups_are_not_one_call_more(lake, tracked, monkeypatch):
    engine = "local"  # what follows is the driver's
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    calls = []
    for name in (
        "log_batch",
        "log_metric",
        "log_param",
        "set_tag",
        "create_run",
        "update_run_info",
    ):
        inner = getattr(SqlAlchemyStore, name)
        monkeypatch.setattr(
            SqlAlchemyStore,
            name,
            lambda self, *args, _inner=inner, _name=name, **kwargs: (
                calls.append(_name), _inner(self, *args, **kwargs),
            )[1],
        )  # fmt: skip
    counts = []
    for groups in (5, 50):
        names = [f"C{number:03}" for number in range(groups)] * 3
        table = pa.table(
            {"carrier": names, "x": np.arange(len(names)) + 1.0, "y": np.ones(len(names))}
        )
        calls.clear()
        write_arrow(table, "many", mode="overwrite", key=())
        assert train("many", engine, model="many").states["trained"] == groups
        counts.append(len(calls))
    assert 0 < counts[0] == counts[1] < 15


def test_keys_of_several_columns_and_types_find_their_models(engine, lake, tracked):
    import pandas as pd

    days = pd.to_datetime(["2013-01-01", "2013-01-02", None] * 4).date
    rows = pa.table({
        "day": pa.array([None if value is pd.NaT else value for value in days], pa.date32()),
        "flight": pa.array([1, 2] * 6, pa.int32()),
        "x": np.arange(12.0),
        "seats": pa.array([None, 7] * 6, pa.int64()),
    })  # fmt: skip
    write_arrow(rows, "keys", key=())

    def fit(frame):
        return (frame["day"].iloc[0], int(frame["flight"].iloc[0]), sorted(frame["x"]))

    def predict(model, frame):
        assert list(frame) == ["x", "seats"]
        return np.full(len(frame), sum(model[2]))

    found = ml.train_per_group(
        "keys", by=["day", "flight"], fit=fit, predict=predict, model="keys", backend=engine
    )
    assert found.states["trained"] == 6
    loaded = tracked.pyfunc.load_model(found.uri)
    frame = rows.to_pandas()
    wanted = frame.groupby(["day", "flight"], dropna=False)["x"].transform("sum")
    assert loaded.predict(frame.assign(seats=frame["seats"].astype(float))) == pytest.approx(wanted)


def test_what_no_model_can_be_chosen_by_is_refused(lines, tracked):
    lines(SLOPES)
    with pytest.raises(MlRequestError, match="'x' is a double"):
        ml.train_per_group("lines", by="x", fit=fit_line, model="m", backend="local")
    with pytest.raises(MlRequestError, match="two parts"):
        ml.train_per_group(
            "lines", by="carrier", target="carrier", fit=fit_line, model="m", backend="local"
        )
    empty = write_arrow(pa.table({"carrier": pa.array([], pa.string())}), "none", key=())
    with pytest.raises(MlRequestError, match="no rows"):
        ml.train_per_group(empty, by="carrier", fit=fit_line, model="m", backend="local")
