"""Values of an expression over Arrow columns, with Spark's meaning.

Where Arrow and Spark differ (NaN, division, overflow, text against date) the Spark way is taken;
where Spark's answer depends on the session (its time zone), there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta import sql_texts
from headrace.delta.sql import Call, Column, Literal, Node, SqlError

# An Arrow array, chunked array or scalar.
Value = Any

_LITERALS = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
_CASTS = {
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def holds(node: Node, data: pa.Table) -> pa.ChunkedArray:
    """For each row whether a condition is true; unknown (null) counts as false.

    Raises:
        SqlError: The condition can't be answered as Spark does.
    """
    result = _evaluate(node, data)
    if not pa.types.is_boolean(result.type) and not pa.types.is_null(result.type):
        raise SqlError(f"it is a {result.type}, not a condition")
    return pc.fill_null(column_of(result, data.num_rows).cast(pa.bool_()), False)


def evaluate(node: Node, data: pa.Table) -> pa.ChunkedArray:
    """The value of an expression for each row.

    Raises:
        SqlError: It can't be computed as Spark does.
    """
    return column_of(_evaluate(node, data), data.num_rows)


def column_of(value: Value, rows: int) -> pa.ChunkedArray:
    """A value as a column."""
    if isinstance(value, pa.Scalar):
        value = pa.array([value.as_py()] * rows, value.type)
    return value if isinstance(value, pa.ChunkedArray) else pa.chunked_array([value])


def _evaluate(node: Node, data: pa.Table) -> Value:
    match node:
        case Literal(value, kind):
            return _literal(value, kind)
        case Column(path):
            return _lookup(data, path)
        case Call("cast", (inner, Literal(name, "type"))):
            return _cast(_evaluate(inner, data), name)
        case Call(name, args):
            function = _FUNCTIONS.get(name)
            if function is None:
                raise SqlError(f"{name}() is not supported")
            try:
                return function(*(_evaluate(arg, data) for arg in args))
            except TypeError as error:
                raise SqlError(f"{name} does not take {len(args)} arguments") from error
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SqlError(f"{name} failed: {error}") from error


def _literal(value: Any, kind: str | None) -> pa.Scalar:
    if kind is None:
        return pa.scalar(None)
    return pa.scalar(value, _LITERALS.get(kind))


def _lookup(data: pa.Table, path: tuple[str, ...]) -> Value:
    names = {name.lower(): index for index, name in enumerate(data.column_names)}
    if path[0].lower() not in names:
        raise SqlError(f"there is no column {path[0]!r}")
    column = data.column(names[path[0].lower()])
    for name in path[1:]:
        if not pa.types.is_struct(column.type):
            raise SqlError(f"{name!r} is not a field of a struct")
        fields = {child.name.lower(): index for index, child in enumerate(column.type)}
        if name.lower() not in fields:
            raise SqlError(f"there is no field {name!r}")
        column = pc.struct_field(column, [fields[name.lower()]])
    return column


# --- comparisons ---------------------------------------------------------------------------------


def _compare(op: str, left: Value, right: Value) -> Value:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    left, right = _alike(left, right)
    if pa.types.is_floating(left.type):
        return _compare_floats(op, left, right)
    return _ARROW_COMPARISONS[op](left, right)


_ARROW_COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _compare_floats(op: str, left: Value, right: Value) -> Value:
    """NaN equals itself and is above every other number, in Spark."""
    nan_left, nan_right = pc.is_nan(left), pc.is_nan(right)
    if op in (">", ">="):
        return _compare_floats(_MIRRORED[op], right, left)
    if op == "!=":
        return pc.invert(_compare_floats("=", left, right))
    equal = pc.or_(pc.equal(left, right), pc.and_(nan_left, nan_right))
    if op == "=":
        return equal
    less = pc.or_(pc.less(left, right), pc.and_not(nan_right, nan_left))
    return less if op == "<" else pc.or_(less, equal)


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Both sides in the type that Spark compares them in."""
    a, b = left.type, right.type
    if a == b:
        return left, right
    if _is_number(a) and _is_number(b):
        if pa.types.is_floating(a) or pa.types.is_floating(b):
            return left.cast(pa.float64()), right.cast(pa.float64())
        return left, right
    if pa.types.is_string(a) and isinstance(left, pa.Scalar):
        return _from_text(left, b), right
    if pa.types.is_string(b) and isinstance(right, pa.Scalar):
        return left, _from_text(right, a)
    raise SqlError(f"{a} is not compared with {b}")


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _from_text(text: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(kind):
        return _date_literal(text)
    if pa.types.is_timestamp(kind):
        return _timestamp_literal(text) if kind.tz else _ntz_literal(text)
    raise SqlError(f"a text is not compared with {kind}")


def _date_literal(text: Value) -> pa.Scalar:
    try:
        return pa.scalar(date.fromisoformat(text.as_py()), pa.date32())
    except ValueError as error:
        raise SqlError(f"{text.as_py()!r} is not a date like 2026-01-31") from error


def _timestamp_literal(text: Value) -> pa.Scalar:
    moment = _moment(text)
    if moment.tzinfo is None:
        raise SqlError(f"{text.as_py()!r} has no time zone; its meaning depends on the session")
    return pa.scalar(moment.astimezone(UTC), pa.timestamp("us", "UTC"))


def _ntz_literal(text: Value) -> pa.Scalar:
    moment = _moment(text)
    if moment.tzinfo is not None:
        raise SqlError(f"{text.as_py()!r} has a time zone")
    return pa.scalar(moment, pa.timestamp("us"))


def _moment(text: Value) -> datetime:
    try:
        return datetime.fromisoformat(text.as_py())
    except ValueError as error:
        raise SqlError(f"{text.as_py()!r} is not a time like 2026-01-31T12:00:00Z") from error


def _null_safe_equal(left: Value, right: Value) -> Value:
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.fill_null(_compare("=", left, right), False))


def _in(value: Value, *options: Value) -> Value:
    result: Value = pa.scalar(False)
    for option in options:
        result = pc.or_kleene(result, _compare("=", value, option))
    return result


# --- arithmetic ----------------------------------------------------------------------------------


def _arithmetic(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def apply(left: Value, right: Value) -> Value:
        _need_numbers(left, right)
        if pa.types.is_floating(left.type) != pa.types.is_floating(right.type):
            left, right = left.cast(pa.float64()), right.cast(pa.float64())
        return function(left, right)

    return apply


def _need_numbers(*values: Value) -> None:
    for value in values:
        if not _is_number(value.type):
            raise SqlError(f"it does not calculate with {value.type}")


def _divide(left: Value, right: Value) -> Value:
    _need_numbers(left, right)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        raise SqlError("division of decimals is not supported")
    _refuse_zero(right)
    return pc.divide(left.cast(pa.float64()), right.cast(pa.float64()))


def _modulo(left: Value, right: Value) -> Value:
    if not (pa.types.is_integer(left.type) and pa.types.is_integer(right.type)):
        raise SqlError("% is supported for integers only")
    _refuse_zero(right)
    # Arrow's integer division cuts towards zero, so the rest has the dividend's sign, as in Spark.
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _refuse_zero(value: Value) -> None:
    zero = pc.equal(value, pa.scalar(0).cast(value.type))
    if (zero.as_py() if isinstance(zero, pa.Scalar) else pc.any(zero).as_py()) is True:
        raise SqlError("it divides by zero")


def _cast(value: Value, name: str) -> Value:
    target = _CASTS.get(name)
    if target is None:
        raise SqlError(f"CAST to {name.upper()} is not supported")
    source = value.type
    if source == target:
        return value
    whole = pa.types.is_integer(source)
    if whole and (pa.types.is_integer(target) or pa.types.is_string(target)):
        return value.cast(target)
    if (whole or pa.types.is_float32(source)) and pa.types.is_float64(target):
        return value.cast(target, safe=False)
    if pa.types.is_date(target) and pa.types.is_timestamp(source) and source.tz is None:
        return pc.floor_temporal(value, unit="day").cast(target)
    raise SqlError(f"CAST from {source} to {name.upper()} is not supported")


# --- functions -----------------------------------------------------------------------------------


def _of_day(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        if not (pa.types.is_date(value.type) or pa.types.is_timestamp(value.type)):
            raise SqlError(f"a date was expected, not {value.type}")
        if pa.types.is_timestamp(value.type) and value.type.tz is not None:
            raise SqlError("the day of a timestamp depends on the session's time zone")
        return function(value).cast(pa.int32())

    return apply


def _logical(function: Callable[..., Value]) -> Callable[..., Value]:
    """Logic takes conditions only, and a bare NULL as an unknown one."""

    def apply(*values: Value) -> Value:
        for value in values:
            if not (pa.types.is_boolean(value.type) or pa.types.is_null(value.type)):
                raise SqlError(f"a condition was expected, not {value.type}")
        return function(*(value.cast(pa.bool_()) for value in values))

    return apply


def _is_nan(value: Value) -> Value:
    _need_numbers(value)
    return pc.fill_null(pc.is_nan(value.cast(pa.float64(), safe=False)), False)


def _week_day(first: int, *, from_zero: bool) -> Callable[[Value], Value]:
    return _of_day(lambda value: pc.day_of_week(value, count_from_zero=from_zero, week_start=first))


def _of_hour(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        if not pa.types.is_timestamp(value.type) or value.type.tz is not None:
            raise SqlError(f"the hour of {value.type} is not supported")
        return function(value).cast(pa.int32())

    return apply


def _choose(condition: Value, then: Value, other: Value) -> Value:
    """One of two values of one type, by a condition; unknown chooses the other."""
    if not pa.types.is_boolean(condition.type):
        raise SqlError(f"a condition was expected, not {condition.type}")
    kinds = {value.type for value in (then, other) if not pa.types.is_null(value.type)}
    if len(kinds) > 1:
        raise SqlError(f"it is a {then.type} or a {other.type}")
    wanted = kinds.pop() if kinds else pa.null()
    sure = pc.fill_null(condition, False)
    return pc.if_else(sure, then.cast(wanted), other.cast(wanted))


def _alike_or_refused(value: Value, other: Value) -> Value:
    return _choose(pc.is_valid(value), value, other)


def _null_if(value: Value, other: Value) -> Value:
    return _choose(_compare("=", value, other), pa.scalar(None, value.type), value)


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    **sql_texts.FUNCTIONS,
    **{op: lambda a, b, op=op: _compare(op, a, b) for op in _ARROW_COMPARISONS},
    "<=>": _null_safe_equal,
    "in": _in,
    "and": _logical(pc.and_kleene),
    "or": _logical(pc.or_kleene),
    "not": _logical(pc.invert),
    "is null": pc.is_null,
    "isnull": pc.is_null,
    "isnotnull": pc.is_valid,
    "is true": _logical(lambda a: pc.fill_null(a, fill_value=False)),
    "is false": _logical(lambda a: pc.fill_null(pc.invert(a), fill_value=False)),
    "isnan": _is_nan,
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    "/": _divide,
    "%": _modulo,
    "negate": pc.negate_checked,
    "abs": pc.abs_checked,
    "coalesce": pc.coalesce,
    "nvl": _alike_or_refused,
    "ifnull": _alike_or_refused,
    "nullif": _null_if,
    "if": _choose,
    "year": _of_day(pc.year),
    "month": _of_day(pc.month),
    "day": _of_day(pc.day),
    "dayofmonth": _of_day(pc.day),
    "quarter": _of_day(pc.quarter),
    "dayofyear": _of_day(pc.day_of_year),
    "weekofyear": _of_day(pc.iso_week),
    "dayofweek": _week_day(7, from_zero=False),
    "weekday": _week_day(1, from_zero=True),
    "hour": _of_hour(pc.hour),
    "minute": _of_hour(pc.minute),
    "second": _of_hour(pc.second),
    "date literal": _date_literal,
    "timestamp literal": _timestamp_literal,
    "timestamp_ntz literal": _ntz_literal,
}
