from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

from headrace.engines.arguments import decode_arguments
from headrace.engines.spec import encode_arguments
from headrace.exceptions import ArgumentError
from headrace.tables import TableRef

TABLE = TableRef(uri="/lake/flights", version=7, schema_hash="ab")


class Color(enum.Enum):
    RED = "red"


class Options(BaseModel):
    depth: int
    since: dt.datetime
    table: TableRef | None = None


@dataclass
class Split:
    share: float
    folder: Path


def job(
    table: TableRef,
    tables: list[TableRef],
    day: dt.date,
    *,
    path: Path,
    color: Color,
    options: Options,
    split: Split,
    pair: tuple[int, str],
    free,
    count: int = 1,
): ...


def test_typed_values_pass_unchanged():
    since = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    values = {
        "table": TABLE,
        "tables": [TABLE],
        "day": dt.date(2013, 1, 31),
        "path": Path("/a b"),
        "color": Color.RED,
        "options": Options(depth=3, since=since, table=TABLE),
        "split": Split(0.25, Path("x")),
        "pair": (1, "a"),
        "free": {"any": [TABLE, None, 1.5]},
    }
    assert decode_arguments("job", job, encode_arguments("job", values)) == values


def test_numpy_scalars_pass_as_numbers():
    import numpy as np

    assert encode_arguments("job", {"a": np.int64(3), "b": [np.float32(0.5)]}) == {
        "a": 3,
        "b": [0.5],
    }


def test_data_is_refused_as_an_argument():
    import pandas as pd

    with pytest.raises(ArgumentError, match=r"'job'.*'frame'.*\n.*DataFrame"):
        encode_arguments("job", {"frame": pd.DataFrame({"a": [1]})})
    with pytest.raises(ArgumentError, match="1 MiB may pass"):
        encode_arguments("job", {"text": "x" * 2**21})


def test_a_value_that_does_not_fit_names_parameter_and_annotation():
    with pytest.raises(ArgumentError, match=r"'count'(.|\n)*annotation is int"):
        decode_arguments("job", job, {"count": "many"})


def test_an_unknown_parameter_tells_the_known_ones():
    with pytest.raises(ArgumentError, match=r"'deepth'(.|\n)*table, tables"):
        decode_arguments("job", job, {"deepth": 1})
