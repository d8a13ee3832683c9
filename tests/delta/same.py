"""Compare what two readers make of a table: types, then rows, value by value."""

from __future__ import annotations

import pyarrow as pa


def described(kind: pa.DataType):
    """A type without what doesn't matter: nullability, names of list items."""
    if pa.types.is_struct(kind):
        return ("struct", *((child.name, described(child.type)) for child in kind))
    if pa.types.is_list(kind):
        return ("list", described(kind.value_type))
    if pa.types.is_map(kind):
        return ("map", described(kind.key_type), described(kind.item_type))
    return str(kind)


def plain(value):
    """A value that compares and sorts with any other: NaN is itself, -0.0 is not 0.0."""
    if isinstance(value, dict):
        return tuple((key, plain(item)) for key, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return repr(bytes(value)) if isinstance(value, bytes | bytearray) else repr(value)


def rows(table: pa.Table):
    """Sorted rows; times and dates as numbers, since Python can't hold all of them."""
    columns = [bare(column).to_pylist() for column in table.columns]
    return sorted((tuple(map(plain, row)) for row in zip(*columns, strict=True)), key=repr)


def bare(column):
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column


def assert_same(got: pa.Table, wanted: pa.Table) -> None:
    assert [(field.name, described(field.type)) for field in got.schema] == [
        (field.name, described(field.type)) for field in wanted.schema
    ]
    assert got.num_rows == wanted.num_rows
    assert rows(got) == rows(wanted)


def spark_rows(frame) -> pa.Table | list:
    """A Spark DataFrame as Arrow; as rows where Spark can't export a null variant."""
    if "variant" not in frame.schema.simpleString():
        return frame.toArrow()
    return sorted((plain(_unpacked(row)) for row in frame.collect()), key=repr)


def _unpacked(value):
    if type(value).__name__ == "VariantVal":
        return {"metadata": value.metadata, "value": value.value}
    if hasattr(value, "asDict"):
        return {key: _unpacked(item) for key, item in value.asDict().items()}
    return [_unpacked(item) for item in value] if isinstance(value, list) else value
