"""Filters in SQL: what is understood is evaluated as Spark does, the rest is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.bridge.filters import necessary, translate
from headrace.delta.binding import bind
from headrace.delta.evaluate import keep_rows
from headrace.delta.predicates import And, Column, Comparison, Literal
from headrace.delta.schema import parse_schema
from headrace.delta.sql_filters import parse_filter
from headrace.delta.types import arrow_schema
from headrace.exceptions import ColumnNotFoundError, FilterError
from tests.delta.handmade import schema_json, struct

SCHEMA = parse_schema(
    schema_json(
        ("i", "integer"), ("f", "double"), ("s", "string"), ("d", "date"), ("t", "timestamp"), ("n", "decimal(9,2)"),
        ("b", "boolean"), ("x", "binary"), ("st", struct(("u", "long"))), ("a b", "long"), ("m", "string", {"__COLLATIONS": {}}),
    )
)  # fmt: skip
ROWS = pa.Table.from_pylist(
    [
        {"i": 1, "f": 1.5, "s": "it's", "d": 18262, "t": 0, "n": "1.50", "b": True, "x": b"\x01", "st": {"u": 5}, "a b": 1},
        {"i": 2, "f": float("nan"), "s": "a%b", "d": 0, "t": 1, "n": "2.00", "b": False, "x": b"", "st": {"u": None}, "a b": 2},
        dict.fromkeys(SCHEMA.names),
    ],
    schema=pa.schema([("i", pa.int32()), ("f", pa.float64()), ("s", pa.string()), ("d", pa.int32()), ("t", pa.int64()),
                      ("n", pa.string()), ("b", pa.bool_()), ("x", pa.binary()), ("st", pa.struct([("u", pa.int64())])),
                      ("a b", pa.int64()), ("m", pa.string())]),
).cast(arrow_schema(SCHEMA))  # fmt: skip


def kept(text):
    bound = bind(parse_filter(text), SCHEMA, table="t", text=text)
    return keep_rows(ROWS, bound)["i"].to_pylist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("i = 1", [1]),
        ("I <> 1", [2]),
        ("1 < i", [2]),
        ("i > 1.5", [2]),
        ("i >= -1 AND NOT i = 2", [1]),
        ("i IN (1, NULL)", [1]),
        ("i NOT IN (1, NULL)", []),
        ("i NOT IN (1)", [2]),
        ("i IS NULL OR i = 2", [2, None]),
        ("i <=> NULL", [None]),
        ("i BETWEEN 2 AND 3", [2]),
        ("i NOT BETWEEN 2 AND 3", [1]),
        ("f > 1e300", [2]),  # NaN is above every number
        ("f = 'NaN'", [2]),
        ("s = 'it''s'", [1]),
        ('s = "it\'s"', [1]),
        ("s LIKE 'a\\\\%b'", [2]),
        ("s LIKE 'i_''%'", [1]),
        ("s LIKE 'a'", []),
        ("d = DATE '2020-01-01'", [1]),
        ("d < '1970-01-02'", [2]),
        ("t = TIMESTAMP '1970-01-01 00:00:00.000001'", [2]),
        ("n = 1.5", [1]),
        ("n > 1.999", [2]),
        ("b", [1]),
        ("NOT b", [2]),
        ("b = false", [2]),
        ("x = X'01'", [1]),
        ("st.u = 5", [1]),
        ("st.u IS NULL", [2, None]),
        ("`a b` = i", [1, 2]),
        ("TRUE", [1, 2, None]),
        ("NULL OR i = 1", [1]),
        ("n = i", [2]),
    ],
)
def test_a_filter_keeps_the_rows_that_spark_keeps(text, rows):
    assert kept(text) == rows


@pytest.mark.parametrize(
    "text",
    ["", "i =", "i = 1 +", "upper(s) = 'A'", "i = (select 1)", "i = 1; drop", "s = 'open", "1 = 1", "5", "i ~ 2", "i = 1 2",
     "i = 'x'", "s > 5", "d = 'never'", "st = 1", "m = 'a'", "s LIKE 5", "b > 3", "i"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(FilterError, match="Filter"):
        kept(text)


def test_an_unknown_column_is_named_with_the_closest():
    with pytest.raises(ColumnNotFoundError, match=r"no column 'st\.v'"):
        kept("st.v = 1")


def test_an_expression_of_ray_is_the_same_predicate():
    from ray.data.expressions import col, lit

    assert translate((col("i") > 1) & (lit(2) >= col("f"))) == And(
        Comparison(">", Column(("i",)), Literal(1)), Comparison(">=", Literal(2), Column(("f",)))
    )
    assert translate(col("i") + 1 > 2) is None


def test_only_what_sql_and_ray_agree_on_prunes_for_ray():
    from ray.data.expressions import col

    assert necessary(col("i").not_in([1])) is None
    assert necessary(col("i").is_in([1, None])) is None
    assert necessary(~col("i").is_in([1])) is None
    assert necessary((col("i") + 1 > 2) & (col("f") > 1)) == Comparison(
        ">", Column(("f",)), Literal(1)
    )
