"""Table rules are evaluated with Spark's meaning, or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.delta.sql import SqlError, columns_of, parse
from headrace.delta.sql_values import evaluate, holds

NAN = float("nan")
ROWS = pa.table(
    {
        "n": pa.array(range(6)),
        "i": pa.array([1, -7, None, 2**31 - 1, 0, 5], pa.int32()),
        "l": pa.array([1, 2**53 + 1, None, -3, 0, 7], pa.int64()),
        "f": pa.array([0.1, NAN, None, float("inf"), -0.0, 2.5], pa.float32()),
        "x": pa.array([0.1, NAN, None, -1e300, 0.0, 2.5], pa.float64()),
        "d": pa.array([Decimal("1.50"), Decimal("-0.01"), None, Decimal("99.99"), Decimal(0), Decimal(2)], pa.decimal128(4, 2)),
        "s": pa.array(["abc", "a%c", None, "", "it's", "Ünï"]),
        "day": pa.array([dt.date(2020, 2, 29), dt.date(1999, 12, 31), None, dt.date(1, 1, 1), dt.date(9999, 1, 1), dt.date(2020, 3, 1)]),
        "t": pa.array([0, 1, None, -1, 10**15, 5], pa.timestamp("us", "UTC")),
        "ntz": pa.array([0, 1, None, -1, 10**15, 5], pa.timestamp("us")),
        "b": pa.array([True, False, None, True, False, True]),
        "st": pa.array([{"a": 1, "A b": "x"}, {"a": None, "A b": None}, None, {"a": 3, "A b": ""}, {"a": 0, "A b": "y"}, None]),
    }
)  # fmt: skip
CONDITIONS = [
    "i > 0", "i >= -7 and i <= 5", "not (i > 0)", "i is null or l is not null", "i = l", "i <> l",
    "i <=> null", "i != 1", "l = 9007199254740993", "l > 9007199254740992.5", "i in (1, 5, null)",
    "i not in (1, 5)", "i between 0 and 5", "i not between 0 and 5", "x > 1", "x = x", "x < 'a' is null or true",
    "f > 0.1", "f = 0.1", "f >= 2.5D", "x >= 1e300", "x <= 0", "isnan(x)", "not isnan(f)", "x <> 2.5",
    "d > 1.5", "d = 1.50", "d * 2 = 3", "d + 1 > i", "d < x", "i % 3 = 2", "i % 3 = -1", "i / 2 = 2.5",
    "i + l > 0", "-l < 0", "l - 1 >= 0", "abs(l) = 3", "l * 2 = 14",
    "s = 'abc'", "s like 'a%c'", r"s like 'a\\%c'", "s like '_'", "s like ''", "s not like 'a%'", "s > 'a'",
    "s in ('', 'it\\'s')", 's = "abc"', "length(s) > 3", "char_length(s) = 3", "upper(s) = 'ABC' or n > 3",
    "trim(s) = s", "s is null", "coalesce(s, 'none') = 'none'",
    "day > '2000-01-01'", "day = date '2020-02-29'", "year(day) = 2020", "month(day) = 12",
    "day(day) = 29", "dayofmonth(day) = 1", "'2020-02-29' <= day",
    "t > timestamp '1970-01-01T00:00:00.000001Z'", "t <= '1970-01-01T00:00:00+00:00'",
    "ntz > timestamp_ntz '1970-01-01 00:00:00'", "year(ntz) = 1970", "cast(ntz as date) = '1970-01-01'",
    "b", "not b", "b = true", "b is true", "b is not false", "b is false", "b and i > 0", "b or null",
    "st.a > 0", "st.`A b` = ''", "st is null", "st.a is null", "ST.A >= 0 -- a comment",
    "cast(i as bigint) = l", "cast(l as string) = '7'", "isnull(i)", "isnotnull(i)",
    "s || 'x' = 'abcx'", "concat(s, '-', s) = 'abc-abc'", "substring(s, 1, 2) = 'ab'", "substr(s, 0, 1) = 'a'",
    "substring(s, 2) = 'bc'", "substring(s, 9, 2) = ''", "substring(s, 1, -1) = ''", "left(s, 2) = 'Ün'",
    "right(s, 2) = 'bc'", "right(s, 9) = s", "right(s, 0) = ''", "startswith(s, 'a')", "endswith(s, 's')",
    "contains(s, '%')", "ltrim('  x ') = 'x '", "rtrim(s || '  ') = s", "nvl(s, 'none') = 'none'",
    "ifnull(l, 7L) = 7", "nullif(s, '') is null", "nullif(l, 7L) = 0", "if(b, i, 0) = 5", "if(l > 0, s, null) = 'abc'",
    "case when i > 1 then 'big' when i > 0 then 'one' else s end = 'one'", "case when i > 1 then true end",
    "case n when 1 then 'x' when 2 then 'y' else 'z' end in ('y', 'z')", "case i when null then true else false end",
    "case when b then case when i > 1 then 1 else 2 end else 3 end = 2", "quarter(day) = 4", "dayofyear(day) = 60",
    "weekofyear(day) = 52", "dayofweek(day) = 7", "weekday(day) = 5", "hour(ntz) = 1", "minute(ntz) = 59",
    "second(ntz) = 40", "ucase(s) = 'ABC' or len(s) > 3", "case when s = 'a' or s = 'b' and b then 1 end is null",
    "null or n = 1", "true", "1 = 1 and n < 3", "n >= 0 and (n = 1 or n = 2) and not n = 2", "n = 0x or true",
]  # fmt: skip
NOT_FOR_US = {
    "x < 'a' is null or true",
    "n = 0x or true",
    "upper(s) = 'ABC' or n > 3",
    "ucase(s) = 'ABC' or len(s) > 3",
}


def ours(condition):
    good = holds(parse(condition), ROWS)
    return ROWS.filter(good)["n"].to_pylist()


@pytest.mark.spark
def test_every_condition_that_is_answered_is_answered_as_spark_does(spark, tmp_path):
    from tests.delta.written import write_arrow

    uri = str(tmp_path / "rows")
    write_arrow(ROWS, uri)
    frame = spark.read.format("delta").load(uri)
    answered = 0
    for condition in CONDITIONS:
        try:
            found = ours(condition)
        except SqlError:
            assert condition in NOT_FOR_US, condition
            continue
        answered += 1
        wanted = sorted(row.n for row in frame.where(condition).select("n").collect())
        assert found == wanted, condition
    assert answered >= len(CONDITIONS) - len(NOT_FOR_US)


@pytest.mark.parametrize(
    "text",
    [
        "s rlike 'a'", "t > '2020-01-01'", "cast(t as date) = '2020-01-01'", "year(t) = 2020",
        "i / 0 = 1", "i % 0 = 1", "d / 2 = 1", "cast(s as int) = 1", "s > 1", "b > 1", "case when b then 1 end", "case b when", "case end",
    "case when b then 1 else 'x' end = 1", "case when i then 1 end = 1", "substring(s, -2) = 'bc'", "s || 1 = 'abc1'",
    "substring(s, i, 1) = 'a'", "startswith(s, s)", "hour(t) = 1", "hour(day) = 1", "if(b, i, l) = 1", "nvl(i, l) = 1",
        "exists(select 1)", "i +", "(i > 0", "i > 0 extra", "unknown_function(i)", "nothing > 1", "st.nothing = 1",
        "i + i > 0", "s = 'a''b'", "s = '\\u0041'", "i", "current_date() > day", "lower(s) = 'ünï'", "like",
    ],
)  # fmt: skip
def test_what_depends_on_the_session_or_is_not_known_is_not_answered(text):
    with pytest.raises(SqlError):
        ours(text)


def test_a_value_has_the_type_that_spark_gives_it():
    kinds = {
        "i + 1": pa.int32(),
        "l + 1": pa.int64(),
        "i / 2": pa.float64(),
        "2147483648": pa.int64(),
        "1.5": pa.decimal128(2, 1),
    }
    for text, kind in kinds.items():
        data = ROWS.slice(0, 1)
        assert evaluate(parse(text), data).type == kind, text


def test_the_columns_of_an_expression_are_told():
    assert columns_of(parse("A > 1 and st.b in (c, 2) or length(`d e`) = 1")) == {
        "a",
        "st",
        "c",
        "d e",
    }
