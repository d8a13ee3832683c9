"""Evaluate a bound filter on an Arrow table, with Spark's rules for null and NaN."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    Predicate,
)

_Value: TypeAlias = Any  # an Arrow array, or a scalar for a constant
_MAX_PRECISION = 38
# Digits before the point that any 64-bit integer fits into.
_INTEGER_DIGITS = 19


def keep_rows(table: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows for which the predicate is true; unknown drops a row, as in SQL."""
    mask = evaluate(table, predicate)
    if isinstance(mask, pa.Scalar):
        return table if mask.as_py() else table.slice(0, 0)
    return table.filter(mask)


def evaluate(table: pa.Table, predicate: Predicate) -> _Value:  # noqa: PLR0911 - one per node
    """The predicate's value for each row: true, false or null."""
    match predicate:
        case And(left, right):
            return pc.and_kleene(evaluate(table, left), evaluate(table, right))
        case Or(left, right):
            return pc.or_kleene(evaluate(table, left), evaluate(table, right))
        case Not(child):
            return pc.invert(evaluate(table, child))
        case Constant(value):
            return pa.scalar(value, pa.bool_())
        case IsNull(operand):
            return pc.is_null(_value(table, operand))
        case In(operand, values):
            return _is_in(table, operand, values)
        case Like(operand, pattern, escape):
            return pc.match_substring_regex(
                _value(table, operand), pattern=like_regex(pattern, escape)
            )
        case Comparison(operator, left, right):
            return compare(operator, _value(table, left), _value(table, right))
        case Column():
            return _value(table, predicate)


def like_regex(pattern: str, escape: str) -> str:
    """A LIKE pattern as a regular expression for the whole text."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return f"(?s)^{''.join(parts)}\\z"


def _value(table: pa.Table, operand: Operand) -> _Value:
    if isinstance(operand, Literal):
        return operand.value
    column = table[operand.path[0]]
    for name in operand.path[1:]:
        column = pc.struct_field(column, name)
    return column


def _is_in(table: pa.Table, operand: Operand, values: tuple[Literal, ...]) -> _Value:
    result: _Value = pa.scalar(False)
    column = _value(table, operand)
    for literal in values:
        result = pc.or_kleene(result, compare("=", column, literal.value))
    return result


def compare(operator: str, left: _Value, right: _Value) -> _Value:
    """Compare as Spark does: in a common type, NaN above everything."""
    left, right = _common(left, right)
    if operator == "<=>":
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both, pc.fill_null(compare("=", left, right), False))
    if pa.types.is_floating(left.type):
        return _NAN_AWARE[operator](left, right)
    return _PLAIN[operator](left, right)


_PLAIN: dict[str, Callable[[_Value, _Value], _Value]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _nan_equal(left: _Value, right: _Value) -> _Value:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _nan_greater(left: _Value, right: _Value) -> _Value:
    """Spark sorts NaN above everything, and NaN equals NaN."""
    above = pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right)))
    return pc.or_(pc.greater(left, right), above)


_NAN_AWARE: dict[str, Callable[[_Value, _Value], _Value]] = {
    "=": _nan_equal,
    "!=": lambda left, right: pc.invert(_nan_equal(left, right)),
    ">": _nan_greater,
    "<": lambda left, right: _nan_greater(right, left),
    ">=": lambda left, right: pc.or_(_nan_greater(left, right), _nan_equal(left, right)),
    "<=": lambda left, right: pc.or_(_nan_greater(right, left), _nan_equal(left, right)),
}


def _common(left: _Value, right: _Value) -> tuple[_Value, _Value]:
    """Both sides in a type that holds either exactly, or doubles where Spark takes doubles."""
    kinds = (left.type, right.type)
    if kinds[0] == kinds[1]:
        return left, right
    if any(pa.types.is_floating(kind) for kind in kinds):
        wanted = pa.float64()
    elif any(pa.types.is_decimal(kind) for kind in kinds):
        wanted = pa.decimal128(_MAX_PRECISION, _common_scale(*kinds))
    elif any(pa.types.is_timestamp(kind) for kind in kinds):
        wanted = next(kind for kind in kinds if pa.types.is_timestamp(kind))
    elif all(pa.types.is_integer(kind) for kind in kinds):
        wanted = pa.int64()
    else:
        return left, right
    return _cast(left, wanted), _cast(right, wanted)


def _cast(value: _Value, wanted: pa.DataType) -> _Value:
    if pa.types.is_date(value.type) and pa.types.is_timestamp(wanted) and wanted.tz:
        value = value.cast(pa.timestamp("us"))
        return value.cast(pa.int64()).cast(wanted)
    if pa.types.is_decimal(value.type) and pa.types.is_floating(wanted):
        return value.cast(pa.float64())
    return value.cast(wanted, safe=False) if pa.types.is_floating(wanted) else value.cast(wanted)


def _common_scale(*kinds: pa.DataType) -> int:
    scales = [kind.scale for kind in kinds if pa.types.is_decimal(kind)]
    return int(min(max(scales), _MAX_PRECISION - _INTEGER_DIGITS))
