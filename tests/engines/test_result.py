from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.engines.result import check_result
from headrace.engines.spec import untag_tables
from headrace.exceptions import ResultError
from headrace.tables import TableRef

TABLE = TableRef(uri="/lake/flights", version=7, schema_hash="ab")

Model = type("Model", (), {"__module__": "sklearn.linear_model"})
UsersModel = type("UsersModel", (Model,), {"__module__": "tasks.train"})
Dataset = type("Dataset", (), {"__module__": "ray.data.dataset"})
Frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})

PandasFrame = type("DataFrame", (), {"__module__": "pandas.core.frame"})

LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "problem", "fix"),
    [
        (Frame(), "a pyspark.sql.classic.dataframe.DataFrame", "write_table"),
        (PandasFrame(), "a pandas.core.frame.DataFrame", "write_arrow"),
        (Dataset(), "a ray.data.dataset.Dataset", "to_delta"),
        (Model(), "a sklearn.linear_model.Model", "register the model"),
        (UsersModel(), "a tasks.train.UsersModel", "register the model"),
        ([1, {"a": float("nan")}], "nan at [1]['a']", "None"),
        (float("-inf"), "-inf", "None"),
        (np.int64(3), "a numpy.int64", "value.item()"),
        (dt.date(2013, 1, 1), "a datetime.date", "isoformat"),
        ({1: 2}, "a dict with the key 1", "texts as keys"),
        ({"a": {1, 2}}, "a set at ['a']", "write a table"),
        (b"abc", "a bytes", "write a table"),
        ("\ud800", "not valid Unicode", "clean text"),
        ("x" * 70_000, "68 KiB", "write a table"),
        (LOOP, "nested", "return less"),
        (SimpleNamespace(a=1), "a types.SimpleNamespace", "write a table"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else type(value).__name__,
)
def test_what_is_no_small_json_is_refused_with_a_way_out(value, problem, fix):
    with pytest.raises(ResultError) as raised:
        check_result("train", value)
    assert raised.value.problem.startswith(problem.split(" at ")[0]) or problem in str(raised.value)
    assert problem in str(raised.value)
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**70), 1.5, np.float64(0.5), "", "é\n", [], {}, [TABLE], {"a": [TABLE, {}]}],
    ids=str,
)
def test_small_json_and_table_references_pass(value):
    assert untag_tables(check_result("train", value)) == value


def test_a_tuple_comes_back_as_a_list():
    assert untag_tables(check_result("train", (TABLE, 1))) == [TABLE, 1]
