"""Statistics of data files, as columns: row counts, bounds and null counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from headrace.delta.actions import STATS_STRUCT

# Below this many files the start-up cost of the columnar parser is not worth it.
_COLUMNAR_FROM = 2_000

Wanted = tuple[Sequence[str], pa.DataType]


def count_rows(files: pa.Table) -> int | None:
    """Rows of all files after deletion vectors, or None when a file does not tell."""
    counts = live_rows(files)
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)


def live_rows(files: pa.Table) -> pa.Array:
    """Rows of each file after its deletion vector; null when unknown."""
    deleted = pc.coalesce(pc.struct_field(files["dv"], "cardinality"), pa.scalar(0, pa.int64()))
    return _counted(_flat(pc.subtract(physical_rows(files), deleted)))


def physical_rows(files: pa.Table) -> pa.Array:
    """Rows in each file, deleted ones included; null when unknown."""
    if "rows" in files.column_names:
        return _flat(files["rows"])
    return _counted(stats_column(files, ("numRecords",), pa.int64()))


def _counted(rows: pa.Array) -> pa.Array:
    """The numbers that can be numbers of rows: some writers put -1 for unknown."""
    return pc.if_else(pc.less(rows, 0), pa.scalar(None, pa.int64()), rows)


def stats_column(files: pa.Table, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    """One value of each file's statistics; see `stats_columns`."""
    return stats_columns(files, [(path, kind)])[0]


def stats_columns(files: pa.Table, wanted: Sequence[Wanted]) -> list[pa.Array]:
    """Some values of each file's statistics, parsed in one pass.

    Args:
        files: `Snapshot.files`.
        wanted: Keys from the outside in, such as `("minValues", "day")`, and the type that the
            value is wanted in; a value that does not fit becomes null.
    """
    found = _from_json(_flat(files["stats"]), wanted)
    if STATS_STRUCT not in files.column_names:
        return found
    structs = files[STATS_STRUCT]
    return [
        _flat(pc.coalesce(values, _from_struct(structs, path, kind)))
        for values, (path, kind) in zip(found, wanted, strict=True)
    ]


def _from_struct(column: pa.ChunkedArray, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    for name in path:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return pa.nulls(len(column), kind)
        column = pc.struct_field(column, name)
    try:
        return _flat(column.cast(kind))
    except pa.ArrowException:
        return pa.nulls(len(column), kind)


def _from_json(texts: pa.Array, wanted: Sequence[Wanted]) -> list[pa.Array]:
    valid = pc.drop_null(texts)
    if len(valid) == 0:
        return [pa.nulls(len(texts), kind) for _, kind in wanted]
    values = _parse_columnar(valid, wanted) if len(valid) >= _COLUMNAR_FROM else None
    if values is None:
        parsed = [_parse(text) for text in valid.to_pylist()]
        values = [
            pa.array([_dig(item, path, kind) for item in parsed], kind) for path, kind in wanted
        ]
    if len(valid) == len(texts):
        return values
    present = pc.is_valid(texts)
    places = pc.cumulative_sum(present.cast(pa.int64()))
    rows = pc.if_else(present, pc.subtract(places, 1), None)
    return [column.take(rows) for column in values]


def _parse_columnar(texts: pa.Array, wanted: Sequence[Wanted]) -> list[pa.Array] | None:
    """Parse with Arrow, or return None where a text does not fit the types."""
    lines = "\n".join(texts.to_pylist()).encode()
    if lines.count(b"\n") != len(texts) - 1:
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(block_size=1 << 24),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(_nested_type(wanted))),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(texts):
        return None
    return [_follow(table[path[0]], path[1:]) for path, _ in wanted]


def _nested_type(wanted: Sequence[Wanted]) -> pa.StructType:
    """A struct type with all the wanted paths."""
    children: dict[str, list[Wanted]] = {}
    for path, kind in wanted:
        children.setdefault(path[0], []).append((path[1:], kind))
    return pa.struct(
        [
            (name, below[0][1] if not below[0][0] else _nested_type(below))
            for name, below in children.items()
        ]
    )


def _follow(column: pa.ChunkedArray, path: Sequence[str]) -> pa.Array:
    for name in path:
        column = pc.struct_field(column, name)
    return _flat(column)


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return None


def _dig(value: Any, path: Sequence[str], kind: pa.DataType) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or (pa.types.is_floating(kind) and isinstance(value, str)):
        return None
    try:
        exact = float(value) if pa.types.is_floating(kind) else value
        return pa.scalar(exact, kind).as_py()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
