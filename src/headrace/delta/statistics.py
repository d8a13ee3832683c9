"""Statistics of data files, as columns: row counts, bounds and null counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from headrace.delta.actions import STATS_STRUCT

_COLUMNAR_FROM = 2_000


def count_rows(files: pa.Table) -> int | None:
    """Rows of all files after deletion vectors, or None when a file does not tell."""
    counts = live_rows(files)
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)


def live_rows(files: pa.Table) -> pa.Array:
    """Rows of each file after its deletion vector; null when unknown."""
    deleted = pc.coalesce(pc.struct_field(files["dv"], "cardinality"), pa.scalar(0, pa.int64()))
    return _flat(pc.subtract(physical_rows(files), deleted))


def physical_rows(files: pa.Table) -> pa.Array:
    """Rows in each file, deleted ones included; null when unknown."""
    return stats_column(files, ("numRecords",), pa.int64())


def stats_column(files: pa.Table, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    """One value of each file's statistics, such as `("minValues", "day")`.

    Args:
        files: `Snapshot.files`.
        path: Keys from the outside in.
        kind: The type that the values are wanted in; a text that does not fit becomes null.
    """
    found = _from_json(files["stats"], path, kind)
    if STATS_STRUCT in files.column_names:
        found = pc.coalesce(found, _from_struct(files[STATS_STRUCT], path, kind))
    return _flat(found)


def _from_struct(column: pa.ChunkedArray, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    for name in path:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return pa.nulls(len(column), kind)
        column = pc.struct_field(column, name)
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)


def _from_json(column: pa.ChunkedArray, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    texts = _flat(column)
    valid = pc.drop_null(texts)
    if len(valid) == 0:
        return pa.nulls(len(texts), kind)
    values = None
    if len(valid) >= _COLUMNAR_FROM:
        values = _parse_columnar(valid, path, kind)
    if values is None:
        values = pa.array([_dig(text, path, kind) for text in valid.to_pylist()], kind)
    if len(valid) == len(texts):
        return values
    places = pc.cast(pc.cumulative_sum(pc.cast(pc.is_valid(texts), pa.int64())), pa.int64())
    return values.take(pc.if_else(pc.is_valid(texts), pc.subtract(places, 1), None))


def _parse_columnar(texts: pa.Array, path: Sequence[str], kind: pa.DataType) -> pa.Array | None:
    wanted: pa.DataType = kind
    for name in reversed(path[1:]):
        wanted = pa.struct([(name, wanted)])
    lines = "\n".join(texts.to_pylist()).encode()
    if lines.count(b"\n") != len(texts) - 1:
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(block_size=1 << 24),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([(path[0], wanted)]),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    found = table[path[0]]
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return _flat(found) if len(found) == len(texts) else None


def _dig(text: str, path: Sequence[str], kind: pa.DataType) -> Any:
    try:
        value = json.loads(text)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else pa.scalar(value, kind).as_py()
    except (ValueError, TypeError, pa.ArrowException):
        return None


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
