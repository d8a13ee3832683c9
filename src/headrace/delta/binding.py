"""Fit a filter to a table: columns by name, constants in the columns' types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.delta.partitions import partition_scalar
from headrace.delta.predicates import (
    MIRRORED,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Operand,
    Predicate,
    field_of,
    map_leaves,
)
from headrace.delta.schema import Primitive, Struct, text_type_at
from headrace.delta.types import arrow_type
from headrace.exceptions import ColumnNotFoundError, FilterError

_COLLATION = "__COLLATIONS"


def bind(predicate: Predicate, schema: Struct, *, table: str, text: str) -> Predicate:
    """Resolve a filter's columns and turn its constants into the columns' types.

    Args:
        predicate: The filter.
        schema: The table's schema.
        table: The table, for error texts.
        text: The filter as the user wrote it, for error texts.

    Raises:
        ColumnNotFoundError: The table has no such column.
        FilterError: A constant does not fit the column it is compared with.
    """
    return map_leaves(predicate, _Binder(schema, table, text).leaf)


class _Binder:
    def __init__(self, schema: Struct, table: str, text: str) -> None:
        self.schema, self.table, self.text = schema, table, text

    def leaf(self, node: Predicate) -> Predicate:  # noqa: PLR0911 - one per node
        """Bind one leaf of the tree."""
        match node:
            case Comparison(operator, Literal() as left, Column() as right):
                return self.leaf(Comparison(MIRRORED[operator], right, left))
            case Comparison(operator, Column() as left, right):
                column, kind = self._column(left)
                return Comparison(operator, column, self._operand(right, kind, column))
            case Comparison():
                raise self._error("it compares two constants")
            case In(Column() as operand, values):
                column, kind = self._column(operand)
                return In(column, tuple(self._literal(value, kind, column) for value in values))
            case IsNull(Column() as operand):
                return IsNull(self._column(operand)[0])
            case Like(Column() as operand, pattern, escape):
                column, kind = self._column(operand)
                if kind != Primitive("string"):
                    raise self._error(f"LIKE needs a text, and {column.path[-1]} is none")
                return Like(column, pattern, escape)
            case Column():
                column, kind = self._column(node)
                if kind != Primitive("boolean"):
                    raise self._error(f"{'.'.join(column.path)} alone is not a condition")
                return Comparison("=", column, Literal(pa.scalar(True)))
            case _:
                return node

    def _column(self, column: Column) -> tuple[Column, Any]:
        found = field_of(self.schema, column.path)
        if found is None:
            raise ColumnNotFoundError(
                column=".".join(column.path), table=self.table, known=tuple(self.schema.names)
            )
        path, fields = found
        if any(_COLLATION in item.metadata for item in fields):
            raise self._error(f"{path[-1]} has a collation, which a filter here would ignore")
        return Column(path), fields[-1].type

    def _padded(self, literal: Literal, column: Column) -> Literal:
        """A text as long as the CHAR column that it is compared with, as Spark pads it."""
        found = field_of(self.schema, column.path)
        name = text_type_at(found[1]) if found else ""
        if not (isinstance(literal.value, str) and name.startswith("char(")):
            return literal
        width = int(name[5:-1])
        text = literal.value[:width] + literal.value[width:].rstrip(" ")
        return Literal(text.ljust(width))

    def _operand(self, operand: Operand, kind: Any, beside: Column) -> Operand:
        if isinstance(operand, Literal):
            return self._literal(operand, kind, beside)
        column, other = self._column(operand)
        if other != kind and not (_is_number(kind) and _is_number(other)):
            raise self._error(
                f"{'.'.join(column.path)} has another type than what it's compared to"
            )
        return column

    def _literal(self, literal: Literal, kind: Any, beside: Column) -> Literal:
        literal = self._padded(literal, beside)
        if not isinstance(kind, Primitive):
            raise self._error("it compares a nested column with a constant")
        if literal.value is None:
            return Literal(pa.scalar(None, arrow_type(kind)))
        value = literal_scalar(literal.value, kind)
        if value is None:
            raise self._error(f"{literal.value!r} does not fit a column of type {kind.name}")
        return Literal(value)

    def _error(self, problem: str) -> FilterError:
        return FilterError(
            filter=self.text,
            problem=problem,
            fix="change the constant, or filter the Dataset after the read",
        )


def literal_scalar(value: Any, kind: Primitive) -> pa.Scalar | None:  # noqa: PLR0911
    """A constant as it is compared with a column of this type; None when it does not fit."""
    value = value.item() if hasattr(value, "item") and not isinstance(value, str) else value
    arrow = arrow_type(kind)
    if isinstance(value, bool):
        return pa.scalar(value) if kind.name == "boolean" else None
    if _is_number(kind):
        return _number(value)
    if kind.name in ("timestamp", "timestamp_ntz"):
        return _moment(value, kind.name, arrow)
    if kind.name == "date" and isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return pa.scalar(zoned, pa.timestamp("us", tz="UTC"))
    if kind.name == "date" and isinstance(value, date):
        return pa.scalar(value, arrow)
    if kind.name == "binary" and isinstance(value, bytes):
        return pa.scalar(value, arrow)
    if isinstance(value, str) and kind.name != "variant":
        found = partition_scalar(value, kind.name, arrow)
        return found if found.is_valid else None
    return None


def _number(value: Any) -> pa.Scalar | None:  # noqa: PLR0911
    if isinstance(value, float):
        return pa.scalar(value, pa.float64())
    if isinstance(value, int | Decimal):
        exact = Decimal(value)
        if not exact.is_finite():
            return pa.scalar(float(exact), pa.float64())
        if exact == exact.to_integral_value() and -(1 << 63) <= exact < 1 << 63:
            return pa.scalar(int(exact), pa.int64())
        try:
            return pa.scalar(exact)
        except pa.ArrowException:
            return pa.scalar(float(exact), pa.float64())
    if isinstance(value, str):
        try:
            return _number(Decimal(value.strip()))
        except ArithmeticError:
            return None
    return None


def _moment(value: Any, name: str, arrow: pa.DataType) -> pa.Scalar | None:
    if isinstance(value, str):
        found = partition_scalar(value, name, arrow)
        return found if found.is_valid else None
    if isinstance(value, datetime):
        if name == "timestamp" and value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        if name == "timestamp_ntz" and value.tzinfo is not None:
            return None
        return pa.scalar(value, arrow)
    if isinstance(value, date):
        return _moment(datetime(value.year, value.month, value.day), name, arrow)  # noqa: DTZ001
    return None


def _is_number(kind: Any) -> bool:
    return isinstance(kind, Primitive) and (
        kind.name in ("byte", "short", "integer", "long", "float", "double")
        or kind.name.startswith("decimal")
    )
