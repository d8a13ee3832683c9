"""Filters of a read: an expression of Ray Data, or SQL, as the library's own predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.delta.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
)
from headrace.delta.sql_filters import parse_filter

if TYPE_CHECKING:
    from ray.data.expressions import Expr

_COMPARISONS: dict[str, Operator] = {
    "GT": ">", "LT": "<", "GE": ">=", "LE": "<=", "EQ": "=", "NE": "!=",
}  # fmt: skip


def parse_any(filter: str | Expr) -> Predicate | None:  # noqa: A002 - the name that users write
    """A filter as a predicate; None for an expression that only Ray can evaluate."""
    return parse_filter(filter) if isinstance(filter, str) else translate(filter)


def translate(expr: Any) -> Predicate | None:
    """An expression of `ray.data.expressions` as a predicate, or None where it has no equal."""
    name = type(expr).__name__
    if name == "AliasExpr":
        return translate(expr.expr)
    if name == "UnaryExpr":
        return _unary(expr)
    if name == "BinaryExpr":
        return _binary(expr)
    operand = _operand(expr)
    if isinstance(operand, Column):
        return operand
    if operand is not None and isinstance(operand.value, bool | None):
        return Constant(operand.value)
    return None


def split_conjunction(expr: Any) -> list[Any]:
    """The parts of an expression that must all hold."""
    if type(expr).__name__ == "BinaryExpr" and expr.op.name == "AND":
        return [*split_conjunction(expr.left), *split_conjunction(expr.right)]
    return [expr]


def necessary(expr: Any) -> Predicate | None:
    """A predicate that holds wherever the expression does: what can be translated of it.

    Ray evaluates by Arrow's rules, where a null is not in any list and so passes `not_in`; parts
    that mean something else in SQL are left out.
    """
    found: Predicate | None = None
    for part in split_conjunction(expr):
        predicate = translate(part) if _means_the_same(part) else None
        if predicate is not None:
            found = predicate if found is None else And(found, predicate)
    return found


def _means_the_same(expr: Any, *, negated: bool = False) -> bool:
    """Whether SQL keeps every row for which Arrow's rules make the expression true."""
    name = type(expr).__name__
    if name == "UnaryExpr":
        return _means_the_same(expr.operand, negated=negated or expr.op.name == "NOT")
    if name != "BinaryExpr":
        return True
    if expr.op.name == "IN":
        values = getattr(expr.right, "value", (None,))
        return not negated and not any(value is None for value in values)
    if expr.op.name == "NOT_IN":
        return False
    return all(_means_the_same(side, negated=negated) for side in (expr.left, expr.right))


def _unary(expr: Any) -> Predicate | None:
    if expr.op.name == "NOT":
        child = translate(expr.operand)
        return None if child is None else Not(child)
    operand = _operand(expr.operand)
    if operand is None or not isinstance(operand, Column):
        return None
    if expr.op.name == "IS_NULL":
        return IsNull(operand)
    return Not(IsNull(operand)) if expr.op.name == "IS_NOT_NULL" else None


def _binary(expr: Any) -> Predicate | None:
    name = expr.op.name
    if name in ("AND", "OR"):
        left, right = translate(expr.left), translate(expr.right)
        if left is None or right is None:
            return None
        return And(left, right) if name == "AND" else Or(left, right)
    left_side, right_side = _operand(expr.left), _operand(expr.right)
    if left_side is None or right_side is None:
        return None
    if name in _COMPARISONS:
        both = isinstance(left_side, Literal) and isinstance(right_side, Literal)
        return None if both else Comparison(_COMPARISONS[name], left_side, right_side)
    if name in ("IN", "NOT_IN") and isinstance(right_side, Literal):
        values = tuple(Literal(value) for value in right_side.value)
        found = In(left_side, values)
        return found if name == "IN" else Not(found)
    return None


def _operand(expr: Any) -> Operand | None:
    name = type(expr).__name__
    if name == "ColumnExpr":
        return Column((expr.name,))
    if name == "LiteralExpr":
        return Literal(expr.value)
    return None
