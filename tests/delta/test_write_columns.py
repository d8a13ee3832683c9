"""Conversion to a table's types: exact or refused, for every Arrow type and layout."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta.schema import Array, Field, Map, Primitive, Struct
from headrace.delta.write_columns import Columns
from headrace.delta.write_types import delta_type, stored_type, type_name
from headrace.exceptions import SchemaMismatchError, UnwritableTypeError

COLUMNS = Columns("t")
INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
RANGES = {"byte": 7, "short": 15, "integer": 31, "long": 63}


def convert(array, kind):
    table = COLUMNS.convert(pa.table({"x": array}), Struct((Field("x", kind),)))
    result = table["x"].combine_chunks()
    result.validate(full=True)
    assert result.type == stored_type(kind)
    return result.to_pylist()


def as_stored(array):
    return type_name(delta_type(array.type)), convert(array, delta_type(array.type))


@settings(deadline=None)
@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(sorted(RANGES)))
def test_integers_fit_or_are_refused(data, kind, target):
    low, high = (
        (0, 2**kind.bit_width - 1)
        if str(kind).startswith("u")
        else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    )
    values = data.draw(st.lists(st.none() | st.integers(low, high), max_size=5))
    bound = 2 ** RANGES[target]
    fits = all(value is None or -bound <= value < bound for value in values)
    array = pa.array(values, kind)
    if fits:
        assert convert(array, Primitive(target)) == values
    else:
        with pytest.raises(UnwritableTypeError, match="x"):
            convert(array, Primitive(target))


@settings(deadline=None)
@given(
    st.lists(st.none() | st.floats(), max_size=5),
    st.sampled_from(["float", "double", "integer", "long"]),
)
def test_floats_are_stored_exactly_or_refused(values, target):
    array = pa.array(values, pa.float64())
    try:
        found = convert(array, Primitive(target))
    except UnwritableTypeError:
        found = None

    def exact(value):
        if value is None or target == "double":
            return True
        if target == "float":
            with np.errstate(over="ignore"):
                return math.isnan(value) or float(np.float32(value)) == value
        return math.isfinite(value) and value == int(value) and abs(value) < 2 ** RANGES[target]

    if found is None:
        assert not all(map(exact, values))
    else:
        assert all(map(exact, values))
        for was, got in zip(values, found, strict=True):
            assert (was is None) == (got is None)
            assert was is None or got == was or (math.isnan(was) and math.isnan(got))


@settings(deadline=None)
@given(
    st.integers(-(2**62), 2**62), st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York", None])
)
def test_nanoseconds_become_microseconds_only_when_nothing_is_cut(nanoseconds, zone):
    array = pa.array([nanoseconds], pa.timestamp("ns", zone))
    kind = delta_type(array.type)
    assert kind == Primitive("timestamp" if zone else "timestamp_ntz")
    if nanoseconds % 1000:
        with pytest.raises(UnwritableTypeError, match="lose data"):
            convert(array, kind)
    else:
        table = COLUMNS.convert(pa.table({"x": array}), Struct((Field("x", kind),)))
        assert table["x"].cast(pa.int64()).to_pylist() == [nanoseconds // 1000]


NESTED = st.lists(
    st.none()
    | st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(0, 9),
                "m": st.none()
                | st.lists(
                    st.tuples(st.text(max_size=2), st.none() | st.integers(0, 9)), max_size=2
                ),
            }
        ),
        max_size=3,
    ),
    max_size=6,
)
NESTED_ARROW = pa.struct([("a", pa.uint8()), ("m", pa.map_(pa.large_string(), pa.int8()))])
NESTED_DELTA = Array(
    Struct(
        (
            Field("A", Primitive("long")),
            Field("new", Primitive("string")),
            Field("m", Map(Primitive("string"), Primitive("byte"))),
        )
    )
)


@settings(deadline=None)
@given(
    NESTED,
    st.sampled_from([pa.list_, pa.large_list, pa.list_view]),
    st.integers(0, 3),
    st.booleans(),
)
def test_nested_columns_keep_every_null_in_every_layout(rows, layout, skipped, chunked):
    array = pa.array(rows, layout(NESTED_ARROW))
    column = pa.chunked_array([array.slice(skipped), array]) if chunked else array.slice(skipped)
    wanted = rows[skipped:] + (rows if chunked else [])
    found = convert(column, NESTED_DELTA)
    assert found == [
        row and [item and {"A": item["a"], "new": None, "m": item["m"]} for item in row]
        if row
        else row
        for row in wanted
    ]


def test_encodings_and_views_become_plain():
    assert as_stored(pa.array(["a", None, "a"]).dictionary_encode()) == ("string", ["a", None, "a"])
    assert as_stored(pa.array(["a", None], pa.string_view())) == ("string", ["a", None])
    assert as_stored(pa.array([b"a"], pa.binary(1))) == ("binary", [b"a"])
    assert as_stored(pa.RunEndEncodedArray.from_arrays([2], [7])) == ("long", [7, 7])
    assert as_stored(pa.array([np.float16(1.5)])) == ("float", [1.5])


@pytest.mark.parametrize("shape", [(3, 2, 2), (2, 0, 3), (2, 3, 0), (0, 2), (2, 1)])
def test_tensors_become_lists_in_lists(shape):
    from ray.data._internal.tensor_extensions.arrow import ArrowTensorArray

    values = np.arange(math.prod(shape), dtype="int32").reshape(shape)
    kind, found = as_stored(ArrowTensorArray.from_numpy(values))
    assert found == values.tolist()
    assert kind.count("array") == len(shape) - 1
    if math.prod(shape[1:]):
        fixed = (
            pa.FixedShapeTensorArray.from_numpy_ndarray(values)
            if shape[0] and len(shape) > 1
            else None
        )
        assert fixed is None or as_stored(fixed)[1] == values.tolist()


def test_tensors_of_many_shapes_become_lists_in_lists():
    from ray.data._internal.tensor_extensions.arrow import ArrowVariableShapedTensorArray

    values = np.empty(2, dtype=object)
    values[:] = [np.arange(4).reshape(2, 2), np.arange(6).reshape(3, 2)]
    assert as_stored(ArrowVariableShapedTensorArray.from_numpy(values))[1] == [
        v.tolist() for v in values
    ]


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (pa.array([dt.time(1)]), "time of day"),
        (pa.array([dt.timedelta(1)]), "durations"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "intervals"),
        (pa.array([Decimal(1)], pa.decimal256(50, 2)), "38 digits"),
    ],
)
def test_types_that_delta_lacks_are_refused_by_name(array, word):
    with pytest.raises(TypeError, match=word):
        delta_type(array.type)


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array(["1"]), "long"),
        (pa.array([1]), "string"),
        (pa.array([True]), "integer"),
        (pa.array([0.1]), "float"),
        (pa.array([1.5]), "decimal(3,1)"),
        (pa.array([500]), "decimal(3,1)"),
        (pa.array([Decimal("1.55")]), "decimal(3,1)"),
        (pa.array([2**53 + 1]), "double"),
        (pa.array([0], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([1], pa.timestamp("us")), "date"),
        (pa.array([2**62], pa.timestamp("s")), "timestamp"),
    ],
)
def test_a_value_that_would_change_is_refused(array, target):
    with pytest.raises(UnwritableTypeError) as caught:
        convert(array, Primitive(target))
    assert caught.value.column == "x"
    assert "Fix:" in str(caught.value)


def test_columns_match_without_regard_to_case_and_missing_ones_are_null():
    schema = Struct((Field("Id", Primitive("long")), Field("gone", Primitive("string"))))
    found = COLUMNS.convert(pa.table({"ID": pa.array([1], pa.int8())}), schema)
    assert found.to_pylist() == [{"Id": 1, "gone": None}]
    with pytest.raises(SchemaMismatchError, match="upper and lower case"):
        COLUMNS.convert(pa.table({"ID": [1], "id": [2]}), schema)


def test_a_column_of_nulls_takes_any_type():
    for kind in (Primitive("decimal(5,2)"), NESTED_DELTA, Primitive("timestamp")):
        assert convert(pa.nulls(2), kind) == [None, None]
