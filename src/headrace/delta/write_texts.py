"""CHAR(n) and VARCHAR(n) in a write: texts padded and cut as Spark does, and measured."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.schema import (
    CHAR_TYPE,
    Array,
    DeltaType,
    Field,
    Map,
    Primitive,
    Struct,
    with_text_types,
)


def text_limits(child: Field) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where in a column texts have a length, and the type that says so, as `varchar(3)`."""
    if CHAR_TYPE in child.metadata:
        yield from _limits(with_text_types(child), (child.name,))


def limit_of(name: str) -> int:
    """The n of `char(n)` or `varchar(n)`."""
    return int(name[name.index("(") + 1 : name.index(")")])


def fit_texts(data: pa.Table, schema: Struct) -> pa.Table:
    """The rows with their texts as Spark stores them.

    Spaces that go beyond the length are cut, and a CHAR is filled up with spaces. What is too
    long otherwise stays as it is, for the rule to find.

    Args:
        data: Rows with the columns of the schema.
        schema: The table's schema.
    """
    for index, child in enumerate(schema.fields):
        if any(True for _ in text_limits(child)):
            kind = with_text_types(child)
            chunks = [_fit(chunk, kind) for chunk in data.column(index).chunks]
            field = data.schema.field(index)
            data = data.set_column(index, field, pa.chunked_array(chunks, field.type))
    return data


def _limits(kind: DeltaType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    match kind:
        case Primitive(name) if "char(" in name:
            yield path, name
        case Array(element):
            yield from _limits(element, (*path, "element"))
        case Map(key, value):
            yield from _limits(key, (*path, "key"))
            yield from _limits(value, (*path, "value"))
        case Struct(fields):
            for child in fields:
                yield from _limits(child.type, (*path, child.name))


def _fit(array: pa.Array, kind: DeltaType) -> pa.Array:
    if not any(True for _ in _limits(kind, ())):
        return array
    array = pa.concat_arrays([array]) if array.offset else array
    mask = pc.is_null(array) if array.null_count else None
    match kind:
        case Primitive(name):
            return _fit_leaf(array, name)
        case Array(element):
            values = _fit(array.values, element)
            return pa.ListArray.from_arrays(array.offsets, values, type=array.type, mask=mask)
        case Map(key, value):
            keys, items = _fit(array.keys, key), _fit(array.items, value)
            return pa.MapArray.from_arrays(array.offsets, keys, items, type=array.type, mask=mask)
        case Struct(fields):
            children = [_fit(array.field(at), child.type) for at, child in enumerate(fields)]
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _fit_leaf(array: pa.Array, name: str) -> pa.Array:
    limit = limit_of(name)
    rest = pc.utf8_slice_codeunits(array, limit)
    only_spaces = pc.and_(
        pc.greater(pc.utf8_length(array), limit),
        pc.equal(pc.utf8_trim(rest, characters=" "), ""),
    )
    cut = pc.if_else(only_spaces, pc.utf8_slice_codeunits(array, 0, limit), array)
    return pc.utf8_rpad(cut, width=limit, padding=" ") if name.startswith("char(") else cut
