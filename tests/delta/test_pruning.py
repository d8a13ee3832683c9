"""Pruning never loses a row: a file is left out only when no row of it could be kept."""

from __future__ import annotations

# ruff: noqa: DTZ001 - times without a zone are what is tested
import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta.actions import files_schema
from headrace.delta.binding import bind
from headrace.delta.evaluate import evaluate
from headrace.delta.predicates import And, Column, Comparison, In, IsNull, Literal, Not, Or
from headrace.delta.protocol import Metadata
from headrace.delta.pruning import files_that_match
from headrace.delta.schema import parse_schema
from headrace.delta.sql_filters import parse_filter
from headrace.delta.types import arrow_schema
from tests.delta.handmade import schema_json

SCHEMA = schema_json(
    ("i", "long"), ("f", "double"), ("s", "string"), ("d", "date"), ("t", "timestamp"),
    ("n", "decimal(12,2)"), ("p", "integer"),
)  # fmt: skip
META = Metadata("", None, None, "parquet", SCHEMA, ("p",))
TREE = parse_schema(SCHEMA)

MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(
    lambda value: value.replace(tzinfo=dt.UTC)
)
VALUES = {
    "i": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3),
    "f": st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, math.nan]),
    "s": st.text(max_size=3) | st.text("ab\U0010ffff", min_size=30, max_size=36),
    "d": st.dates(dt.date(1, 1, 1)),
    "t": MOMENTS | st.sampled_from([dt.datetime(2020, 1, 1, 0, 0, 0, at, dt.UTC) for at in (0, 1, 999, 1000)]),
    "n": st.decimals(-(10**9), 10**9, places=2),
    "p": st.integers(-3, 3),
}  # fmt: skip
NAMES = list(VALUES)


def leaf(name):
    operator = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    literal = (VALUES[name] | st.none()).map(Literal)
    return (
        st.builds(Comparison, operator, st.just(Column((name,))), literal)
        | st.builds(
            In, st.just(Column((name,))), st.lists(literal, min_size=1, max_size=3).map(tuple)
        )
        | st.just(IsNull(Column((name,))))
    )


PREDICATES = st.recursive(
    st.sampled_from(NAMES).flatmap(leaf),
    lambda child: (
        st.builds(And, child, child) | st.builds(Or, child, child) | st.builds(Not, child)
    ),
    max_leaves=5,
)
FILE = st.integers(1, 4).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            name: st.lists(VALUES[name] | st.none(), min_size=count, max_size=count)
            for name in NAMES
            if name != "p"
        }
        | {"p": (VALUES["p"] | st.none()).map(lambda value: [value] * count)}
    )
)


def cut(value, side):
    """A bound as Delta writes it: times to the millisecond, texts to 32 characters."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > 32:
        return value[:32] + ("\U0010ffff" if side == "max" else "")
    return float(value) if isinstance(value, Decimal) and value == int(value) else value


def stats_of(rows):
    low, high, nulls = {}, {}, {}
    for name, values in rows.items():
        present = [value for value in values if value is not None]
        nulls[name] = len(values) - len(present)
        # Writers that go by Parquet's statistics leave NaN out of the bounds.
        present = [
            value for value in present if not (isinstance(value, float) and math.isnan(value))
        ]
        if present and name != "p":
            low[name], high[name] = cut(min(present), "min"), cut(max(present), "max")
    count = len(rows["p"])
    content = {"numRecords": count, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(content, default=float)


def add(rows, stats):
    part = rows["p"][0]
    return {"path": "f", "size": 1, "modification_time": 0, "stats": stats, "dv": None,
            "partition:p": None if part is None else str(part)}  # fmt: skip


def as_files(*adds):
    return pa.Table.from_pylist(list(adds), schema=files_schema(["p"]))


@settings(max_examples=400, deadline=None)
@given(FILE, PREDICATES)
def test_a_file_with_a_row_that_fits_is_never_left_out(rows, predicate):
    table = pa.table(rows, schema=arrow_schema(TREE))
    bound = bind(predicate, TREE, table="t", text="")
    result = evaluate(table, bound)
    fits = (
        result.to_pylist()
        if not isinstance(result, pa.Scalar)
        else [result.as_py()] * table.num_rows
    )
    if any(fits):
        assert files_that_match(as_files(add(rows, stats_of(rows))), bound, META).tolist() == [True]


def matches(text, *adds):
    bound = bind(parse_filter(text), TREE, table="t", text=text)
    return files_that_match(as_files(*adds), bound, META).tolist()


FILE_A = {"path": "a", "size": 1, "modification_time": 0, "dv": None, "partition:p": "1",
          "stats": '{"numRecords":3,"minValues":{"i":10,"s":"b","t":"2020-01-01T00:00:00.000Z"},'
                   '"maxValues":{"i":20,"s":"k","t":"2020-01-01T00:00:00.001Z"},"nullCount":{"i":0,"s":1,"f":3}}'}  # fmt: skip
FILE_B = FILE_A | {"path": "b", "stats": None, "partition:p": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i < 10", [False, True]),
        ("i <= 10", [True, True]),
        ("NOT i >= 10", [False, True]),
        ("i IN (1, 2, 30)", [False, True]),
        ("i BETWEEN 21 AND 30", [False, True]),
        ("i IS NULL", [False, True]),
        ("f IS NOT NULL", [False, True]),
        ("p = 1", [True, False]),
        ("p IS NULL", [False, True]),
        ("p <> 1", [False, False]),
        ("p = 2 OR i = 15", [True, True]),
        ("s > 'k'", [False, True]),
        ("t > '2020-01-01 00:00:00.0015'", [True, True]),
        ("t > '2020-01-01 00:00:00.002'", [False, True]),
        ("i = NULL", [False, False]),
        ("s LIKE 'x%'", [True, True]),
    ],
)
def test_a_file_is_left_out_when_its_statistics_prove_it(text, expected):
    assert matches(text, FILE_A, FILE_B) == expected
