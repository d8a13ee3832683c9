"""Rules for rows: NOT NULL, CHECK, invariants, lengths, generated values and defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.protocol import Metadata
from headrace.delta.schema import Array, DeltaType, Field, Map, Struct
from headrace.delta.sql import Call, Column, Node, SqlError, parse
from headrace.delta.sql_values import evaluate, holds
from headrace.delta.write_texts import limit_of, text_limits
from headrace.delta.write_types import stored_type
from headrace.exceptions import ConstraintViolatedError, UnsupportedWriteError

_CHECK = "delta.constraints."
_INVARIANT = "delta.invariants"
_GENERATED = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_ROW_CHARACTERS = 500


class Rule(Interface):
    """Something that every row of a table has to obey."""

    def check(self, table: str, data: pa.Table) -> None:
        """Raise when a row breaks the rule."""


@dataclass(frozen=True)
class Condition:
    """A condition that must be true; unknown (null) breaks it, as in Delta."""

    name: str
    text: str
    node: Node

    def check(self, table: str, data: pa.Table) -> None:  # noqa: D102 - see Rule
        try:
            good = holds(self.node, data)
        except SqlError as error:
            raise _not_evaluated(table, self.name, self.text, error) from error
        if not pc.all(good).as_py():
            _violated(table, self.name, self.text, data, pc.invert(good))


@dataclass(frozen=True)
class NotNull:
    """A column, or a part of a nested column, that must not be null where its parent is there."""

    path: tuple[str, ...]

    def check(self, table: str, data: pa.Table) -> None:  # noqa: D102 - see Rule
        column = data.column(self.path[0]).combine_chunks()
        arrays = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        bad = pa.chunked_array(
            [_where(pc.is_null, array, self.path[1:]) for array in arrays], pa.bool_()
        )
        if pc.any(bad).as_py():
            _violated(table, "NOT NULL", f"{'.'.join(self.path)} is null", data, bad)


@dataclass(frozen=True)
class TextLength:
    """Texts, maybe inside a nested column, with a largest number of characters."""

    path: tuple[str, ...]
    type: str

    def check(self, table: str, data: pa.Table) -> None:  # noqa: D102 - see Rule
        limit = limit_of(self.type)

        def too_long(texts: pa.Array) -> pa.Array:
            return pc.fill_null(pc.greater(pc.utf8_length(texts), limit), False)

        column = data.column(self.path[0])
        parts = [_where(too_long, array, self.path[1:]) for array in column.chunks]
        bad = pa.chunked_array(parts, pa.bool_())
        if pc.any(bad).as_py():
            name = f"the type {self.type} of {'.'.join(self.path)}"
            _violated(table, name, f"length <= {limit}", data, bad)


def _where(test: Callable[[pa.Array], pa.Array], array: pa.Array, path: Sequence[str]) -> pa.Array:
    """For each row of an array whether the test holds for a value at the end of the path."""
    if not path:
        return test(array)
    if pa.types.is_struct(array.type):
        inner = _where(test, array.field(array.type.get_field_index(path[0])), path[1:])
        return pc.and_(array.is_valid(), inner)
    values = array.flatten() if path[0] == "element" else _entries(array, path[0])
    inner = _where(test, values, path[1:])
    lengths = (
        pc.list_value_length(array)
        if pa.types.is_list(array.type)
        else pc.subtract(array.offsets[1:], array.offsets[:-1])
    )
    rows = _parents(pc.fill_null(lengths, 0))
    marked = set(rows.filter(inner).to_pylist())
    return pa.array([index in marked for index in range(len(array))], pa.bool_())


def _entries(array: pa.MapArray, part: str) -> pa.Array:
    return array.keys if part == "key" else array.items


def _parents(lengths: pa.Array) -> pa.Array:
    """For each value of a list array the row it belongs to."""
    import numpy as np

    counts = lengths.to_numpy(zero_copy_only=False).astype("int64")
    return pa.array(np.repeat(np.arange(len(counts)), counts))


def plan_rules(table: str, metadata: Metadata) -> tuple[Rule, ...]:
    """The rules that a table's schema and properties hold.

    Raises:
        UnsupportedWriteError: A rule uses SQL that is not known here; its text is named.
    """
    rules: list[Rule] = [NotNull(path) for path in _not_null(metadata.schema, ())]
    for name, text in sorted(metadata.configuration.items()):
        if name.startswith(_CHECK):
            rules.append(_condition(table, f"CHECK {name.removeprefix(_CHECK)}", text))
    for path, child in _fields(metadata.schema, ()):
        dotted = ".".join(path)
        if _INVARIANT in child.metadata:
            rules.append(_condition(table, f"the invariant of {dotted}", _invariant(child)))
    for child in metadata.schema.fields:
        rules += [TextLength(path, name) for path, name in text_limits(child)]
        if _GENERATED in child.metadata:
            text = str(child.metadata[_GENERATED])
            node = _parsed(table, f"the generated column {child.name}", text)
            same = Call("<=>", (Column((child.name,)), node))
            rules.append(Condition(f"the generated column {child.name}", text, same))
    return tuple(rules)


def _condition(table: str, name: str, text: str) -> Condition:
    return Condition(name, text, _parsed(table, name, text))


def _parsed(table: str, name: str, text: str) -> Node:
    try:
        return parse(text)
    except SqlError as error:
        raise _not_evaluated(table, name, text, error) from error


def _invariant(child: Field) -> str:
    """The expression inside `{"expression":{"expression":"x > 3"}}`."""
    text = str(child.metadata[_INVARIANT])
    return str(json.loads(text)["expression"]["expression"])


def _not_null(kind: DeltaType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    match kind:
        case Struct(fields):
            for child in fields:
                if not child.nullable:
                    yield (*path, child.name)
                yield from _not_null(child.type, (*path, child.name))
        case Array(element, contains_null):
            if not contains_null:
                yield (*path, "element")
            yield from _not_null(element, (*path, "element"))
        case Map(key, value, contains_null):
            if not contains_null:
                yield (*path, "value")
            yield from _not_null(key, (*path, "key"))
            yield from _not_null(value, (*path, "value"))
        case _:
            return


def _fields(kind: Struct, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Fields that an expression can reach: those of structs in structs."""
    for child in kind.fields:
        yield (*path, child.name), child
        if isinstance(child.type, Struct):
            yield from _fields(child.type, (*path, child.name))


def is_computed(child: Field) -> bool:
    """Whether a column has a value when the data does not bring it."""
    return _GENERATED in child.metadata or _DEFAULT in child.metadata


def fill_missing(table: str, data: pa.Table, present: set[str], schema: Struct) -> pa.Table:
    """Compute generated columns and defaults that the data does not bring.

    Args:
        table: Name of the table, for error texts.
        data: Rows with every column of the table, null where it is missing.
        present: Names of the columns that the data brings, in lower case.
        schema: The table's schema.

    Raises:
        UnsupportedWriteError: The value depends on SQL that is not known here.
    """
    for index, child in enumerate(schema.fields):
        text = child.metadata.get(_GENERATED) or child.metadata.get(_DEFAULT)
        if text is None or child.name.lower() in present:
            continue
        name = f"the value of column {child.name}"
        node = _parsed(table, name, str(text))
        target = stored_type(child.type)
        try:
            column = evaluate(node, data).cast(target)
        except (SqlError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _not_evaluated(table, name, str(text), error) from error
        data = data.set_column(index, data.schema.field(index), column)
    return data


def _not_evaluated(table: str, name: str, text: str, error: Exception) -> UnsupportedWriteError:
    return UnsupportedWriteError(
        table=table,
        feature=f"{name}, whose SQL can't be evaluated here",
        found=f"{text}: {error}.",
        fix="write it with Spark, or rewrite the rule with comparisons, AND, OR, NOT, IN, LIKE",
    )


def _violated(table: str, name: str, text: str, data: pa.Table, bad: pa.ChunkedArray) -> None:
    raise ConstraintViolatedError(
        table=table, constraint=name, expression=text, row=first_row(data, bad)
    )


def first_row(data: pa.Table, bad: pa.ChunkedArray) -> str:
    """The first row that is marked, as a short text."""
    index = pc.index(bad, pa.scalar(value=True)).as_py()
    row = data.slice(index, 1).to_pylist()[0]
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= _ROW_CHARACTERS else text[:_ROW_CHARACTERS] + "..."
