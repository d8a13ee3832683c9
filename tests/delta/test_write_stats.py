"""Statistics: a bound may be wider than the values, never narrower."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta.schema import Field, Primitive, Struct
from headrace.delta.write_schema import data_schema
from headrace.delta.write_stats import FileStats, lower_bound, plan_leaves, upper_bound

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def stats_of(*tables):
    schema = data_schema("t", tables[0].schema)
    stats = FileStats(plan_leaves(schema, (), {}))
    for table in tables:
        stats.add(table)
    return json.loads(stats.to_json(), parse_float=Decimal)


@settings(deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_text_bounds_hold_in_spark_s_byte_order(left, right):
    low, high = sorted([left, right], key=lambda text: text.encode())
    kind = Primitive("string")
    assert lower_bound(low, kind).encode() <= low.encode()
    assert high.encode() <= upper_bound(high, kind).encode()
    assert len(lower_bound(low, kind)) <= 32


def test_a_cut_text_has_the_highest_character_after_it():
    assert upper_bound("a" * 40, Primitive("string")) == "a" * 32 + "\U0010ffff"
    assert upper_bound("a" * 32, Primitive("string")) == "a" * 32
    assert (
        upper_bound("a" * 32 + "\U0010ffff" * 3, Primitive("string")) == "a" * 32 + "\U0010ffff" * 3
    )


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_times_are_rounded_outwards_to_the_millisecond(micros):
    kind = Primitive("timestamp")
    low, high = lower_bound(micros, kind), upper_bound(micros, kind)
    for text, is_low in ((low, True), (high, False)):
        if text is None:
            assert not -62135596800000000 <= micros <= 253402300799999000
            continue
        found = (dt.datetime.fromisoformat(text) - EPOCH) // dt.timedelta(microseconds=1)
        assert found <= micros if is_low else found >= micros
        assert abs(found - micros) < 1000


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.floats(), max_size=4), min_size=1, max_size=3))
def test_a_file_with_nan_has_no_bounds_and_others_have_exact_ones(blocks):
    found = stats_of(*(pa.table({"x": pa.array(block, pa.float64())}) for block in blocks))
    values = [value for block in blocks for value in block if value is not None]
    assert found["numRecords"] == sum(map(len, blocks))
    assert found["nullCount"]["x"] == found["numRecords"] - len(values)
    if not values or any(math.isnan(value) for value in values):
        assert "x" not in found["minValues"]
        return
    for side, best in (("minValues", min(values)), ("maxValues", max(values))):
        assert (
            (float(found[side]["x"]) == best) if math.isfinite(best) else ("x" not in found[side])
        )


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**27), 10**27, places=10), min_size=1))
def test_decimals_keep_every_digit(values):
    found = stats_of(pa.table({"x": pa.array(values, pa.decimal128(38, 10))}))
    assert found["minValues"]["x"] == min(values)
    assert found["maxValues"]["x"] == max(values)


def test_fields_of_structs_count_a_null_parent_and_lists_count_themselves():
    rows = [{"s": {"a": 1}, "l": [1]}, {"s": None, "l": None}, {"s": {"a": None}, "l": []}]
    found = stats_of(pa.Table.from_pylist(rows))
    assert found["nullCount"] == {"s": {"a": 2}, "l": 1}
    assert found["minValues"] == {"s": {"a": 1}}


def test_properties_say_which_columns_get_statistics():
    schema = Struct(tuple(Field(f"c{i}", Primitive("long")) for i in range(40)))
    assert len(plan_leaves(schema, ("c0",), {})) == 32
    assert len(plan_leaves(schema, (), {"delta.dataSkippingNumIndexedCols": "-1"})) == 40
    assert plan_leaves(schema, (), {"delta.dataSkippingNumIndexedCols": "0"}) == []
    named = {"delta.dataSkippingStatsColumns": "c3,`c5`"}
    assert [leaf.path for leaf in plan_leaves(schema, (), named)] == [("c3",), ("c5",)]


def test_far_dates_have_no_bounds_that_nobody_reads():
    far = pa.table({"d": pc.cast(pa.array([10**7, 0], pa.int32()), pa.date32())})
    found = stats_of(far)
    assert found["minValues"] == {"d": "1970-01-01"}
    assert found["maxValues"] == {}
