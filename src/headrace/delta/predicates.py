"""Row filters as a small tree, with SQL's three values: true, false, unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from typing import Literal as Choice

import pyarrow as pa

from headrace.delta.schema import DeltaType, Field, Primitive, Struct

Operator = Choice["=", "!=", "<", "<=", ">", ">=", "<=>"]
MIRRORED: dict[str, Operator] = {
    "=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>",
}  # fmt: skip
NEGATED: dict[str, Operator] = {
    "=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column, or a field of a struct column (`("address", "city")`)."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Literal:
    """A constant: a Python value, or a `pyarrow.Scalar` once it is bound to a column's type."""

    value: Any


@dataclass(frozen=True)
class Comparison:
    """Two operands compared; unknown when one is null, except for `<=>`."""

    operator: Operator
    left: Operand
    right: Operand


@dataclass(frozen=True)
class IsNull:
    """Whether an operand is null."""

    operand: Operand


@dataclass(frozen=True)
class In:
    """Whether a column is one of some constants."""

    operand: Operand
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Like:
    """Whether a text fits a LIKE pattern."""

    operand: Operand
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True)
class Not:
    """Negation; unknown stays unknown."""

    child: Predicate


@dataclass(frozen=True)
class And:
    """Both hold."""

    left: Predicate
    right: Predicate


@dataclass(frozen=True)
class Or:
    """One holds at least."""

    left: Predicate
    right: Predicate


@dataclass(frozen=True)
class Constant:
    """True, false, or None for unknown."""

    value: bool | None


Operand = Column | Literal
Predicate = Comparison | IsNull | In | Like | Not | And | Or | Constant | Column


def columns_of(predicate: Predicate) -> list[str]:
    """Top-level columns that a predicate looks at, each once."""
    return list(dict.fromkeys(column.path[0] for column in _columns(predicate)))


def _columns(node: Predicate | Operand) -> Iterator[Column]:
    match node:
        case Column():
            yield node
        case Comparison(_, left, right) | And(left, right) | Or(left, right):
            yield from _columns(left)
            yield from _columns(right)
        case IsNull(child) | Not(child) | In(child) | Like(child):
            yield from _columns(child)
        case _:
            return


def map_leaves(node: Predicate, change: Callable[[Predicate], Predicate]) -> Predicate:
    """The tree with every leaf (what is not AND, OR, NOT) changed."""
    match node:
        case And(left, right):
            return And(map_leaves(left, change), map_leaves(right, change))
        case Or(left, right):
            return Or(map_leaves(left, change), map_leaves(right, change))
        case Not(child):
            return Not(map_leaves(child, change))
        case _:
            return change(node)


def without_not(node: Predicate, *, negate: bool = False) -> Predicate:
    """The same predicate with NOT only right above leaves that have no opposite."""
    match node:
        case Not(child):
            return without_not(child, negate=not negate)
        case And(left, right):
            kind: type[And | Or] = Or if negate else And
            return kind(without_not(left, negate=negate), without_not(right, negate=negate))
        case Or(left, right):
            kind = And if negate else Or
            return kind(without_not(left, negate=negate), without_not(right, negate=negate))
        case Comparison(operator, left, right) if negate and operator in NEGATED:
            return Comparison(NEGATED[operator], left, right)
        case Constant(value) if negate:
            return Constant(None if value is None else not value)
        case _:
            return Not(node) if negate else node


def field_of(schema: Struct, path: tuple[str, ...]) -> tuple[tuple[str, ...], list[Field]] | None:
    """The path with the schema's own spelling and the fields along it, or None."""
    fields: list[Field] = []
    kind: DeltaType = schema
    for name in path:
        found = kind.find(name) if isinstance(kind, Struct) else None
        if found is None:
            return None
        fields.append(found)
        kind = found.type
    return tuple(item.name for item in fields), fields


def is_float(kind: DeltaType | pa.DataType) -> bool:
    """Whether values of this type may be NaN."""
    if isinstance(kind, pa.DataType):
        return bool(pa.types.is_floating(kind))
    return isinstance(kind, Primitive) and kind.name in ("float", "double")
