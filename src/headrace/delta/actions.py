"""The file actions of a log as one Arrow table, from JSON lines or from a checkpoint."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

DV_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("cardinality", pa.int64()),
    ]
)
PARTITION = "partition:"
STATS_STRUCT = "stats_parsed"
# What Spark takes out of a path before it compares it with others: `.`, `..` and empty parts.
_DETOUR = "[^:/]//|(^|/)[.]{1,2}/"
# Below this many lines the start-up cost of the columnar parser is not worth it.
_COLUMNAR_FROM = 2_000
_CHUNK_BYTES = 1 << 25
# A line longer than this goes to Python's parser.
_BLOCK_BYTES = 1 << 24


def partition_column(physical_name: str) -> str:
    """The column of `Snapshot.files` with the values of a partition column, as the log has them."""
    return PARTITION + physical_name


def files_schema(partition_names: Sequence[str]) -> pa.Schema:
    """Columns of `Snapshot.files`; statistics as structs may follow."""
    return pa.schema(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("modification_time", pa.int64()),
            ("stats", pa.string()),
            ("dv", DV_TYPE),
            *((partition_column(name), pa.string()) for name in partition_names),
        ]
    )


def parse_file_lines(texts: Sequence[bytes], partition_names: Sequence[str]) -> pa.Table:
    """Parse lines with an `add` or a `remove` action, oldest first.

    Args:
        texts: Lines, joined by newlines to texts of any length: a JSON object each, one action.
        partition_names: Physical names of the partition columns.

    Returns:
        The columns of `files_schema` and `is_add`, one row per line.
    """
    tables = [_parse_text(text, partition_names) for text in _in_chunks(texts)]
    return pa.concat_tables(tables or [_parse_text(b"", partition_names)])


def _in_chunks(texts: Sequence[bytes]) -> Iterator[bytes]:
    """The texts joined to larger ones, so that the columnar parser is worth it, but not to one."""
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= _CHUNK_BYTES:
            yield b"\n".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"\n".join(waiting)


def _parse_text(text: bytes, partition_names: Sequence[str]) -> pa.Table:
    schema = _line_schema(partition_names)
    count = text.count(b"\n") + 1 if text else 0
    table = _parse_columnar(text, schema) if count >= _COLUMNAR_FROM else None
    if table is None or table.num_rows != count:
        rows = [_plain(json.loads(line)) for line in text.split(b"\n")] if text else []
        table = pa.Table.from_pylist(rows, schema=schema)
    return _flatten_lines(table, partition_names)


def flatten_adds(add: pa.StructArray, partition_names: Sequence[str]) -> pa.Table:
    """Turn the `add` column of a checkpoint into the columns of `files_schema`."""
    add = add.filter(pc.is_valid(_child(add, "path", pa.string())))
    values = _child(add, "partitionValues", pa.map_(pa.string(), pa.string()))
    columns = {
        "path": _child(add, "path", pa.string()),
        "size": _child(add, "size", pa.int64()),
        "modification_time": _child(add, "modificationTime", pa.int64()),
        "stats": _child(add, "stats", pa.string()),
        "dv": _dv(_child(add, "deletionVector", DV_TYPE)),
    }
    for name in partition_names:
        # Some writers of checkpoints leave out that bytes are text.
        key = pa.scalar(name.encode()).cast(values.type.key_type)
        found = pc.map_lookup(values, query_key=key, occurrence="last")
        columns[partition_column(name)] = found.cast(pa.string())
    table = pa.table(columns, schema=files_schema(partition_names))
    if STATS_STRUCT in _child_names(add):
        table = table.append_column(STATS_STRUCT, _child(add, STATS_STRUCT, None))
    return table


def file_keys(files: pa.Table) -> pa.ChunkedArray:
    """What tells two file actions apart: the path, and the deletion vector on it."""
    paths = files["path"]
    if pc.any(pc.match_substring_regex(paths, "^(file:)?/")).as_py():
        paths = pc.replace_substring_regex(paths, pattern="^(file:)?/+", replacement="file:/")
    if pc.any(pc.match_substring_regex(paths, _DETOUR)).as_py():
        texts = [_straight(text) for text in paths.to_pylist()]
        paths = pa.chunked_array([pa.array(texts, pa.string())])
    dv = files["dv"]
    if dv.null_count == len(dv):
        return paths
    parts = [pc.struct_field(dv, name) for name in ("storageType", "pathOrInlineDv", "offset")]
    texts = [pc.coalesce(part.cast(pa.string()), pa.scalar("")) for part in parts]
    # Without a vector the path alone is the key, whatever other files of the table have.
    return pc.if_else(pc.is_null(dv), paths, pc.binary_join_element_wise(paths, *texts, "\n"))


def _straight(path: str) -> str:
    return posixpath.normpath(path) if re.search(_DETOUR, path) else path


def _line_schema(partition_names: Sequence[str]) -> pa.Schema:
    dv = pa.struct([pa.field(child.name, child.type) for child in DV_TYPE])
    values = [("partitionValues", pa.struct([(name, pa.string()) for name in partition_names]))]
    add = pa.struct(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("stats", pa.string()),
            ("deletionVector", dv),
            *(values if partition_names else []),
        ]
    )
    remove = pa.struct([("path", pa.string()), ("deletionVector", dv)])
    return pa.schema([("add", add), ("remove", remove)])


def _parse_columnar(text: bytes, schema: pa.Schema) -> pa.Table | None:
    """Parse with Arrow, or return None where it can't: it is stricter than JSON in places."""
    try:
        return arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None


def _plain(action: dict[str, Any]) -> dict[str, Any]:
    """Keep what Arrow can take: statistics may be an object, partition values bare numbers."""
    add = action.get("add")
    if add:
        add["stats"] = _text(add.get("stats"))
        values = add.get("partitionValues")
        if isinstance(values, dict):
            add["partitionValues"] = {name: _text(value) for name, value in values.items()}
    return action


def _text(value: Any) -> str | None:
    return value if isinstance(value, str | None) else json.dumps(value)


def _flatten_lines(table: pa.Table, partition_names: Sequence[str]) -> pa.Table:
    table = table.combine_chunks()
    add, remove = (_single(table[name]) for name in ("add", "remove"))
    dv = pc.if_else(
        pc.is_valid(_child(add, "path", pa.string())),
        _child(add, "deletionVector", DV_TYPE),
        _child(remove, "deletionVector", DV_TYPE),
    )
    path = pc.coalesce(_child(add, "path", pa.string()), _child(remove, "path", pa.string()))
    columns = {
        "path": path,
        "size": _child(add, "size", pa.int64()),
        "modification_time": _child(add, "modificationTime", pa.int64()),
        "stats": _child(add, "stats", pa.string()),
        "dv": _dv(dv),
    }
    if partition_names:
        values = pc.struct_field(add, "partitionValues")
        for index, name in enumerate(partition_names):
            columns[partition_column(name)] = pc.struct_field(values, [index])
    flat = pa.table(columns, schema=files_schema(partition_names))
    return flat.append_column("is_add", pc.is_valid(_child(add, "path", pa.string())))


def _single(column: pa.ChunkedArray) -> pa.StructArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _child_names(array: pa.StructArray) -> list[str]:
    return [child.name for child in array.type]


def _child(array: pa.StructArray, name: str, kind: pa.DataType | None) -> pa.Array:
    """A struct's child with the parent's nulls, or nulls where there is no such child."""
    if name not in _child_names(array):
        return pa.nulls(len(array), kind)
    child = pc.struct_field(array, name)
    return child if kind is None or pa.types.is_nested(child.type) else child.cast(kind)


def _dv(array: pa.StructArray) -> pa.StructArray:
    """Deletion vectors with the columns and types of `DV_TYPE`; null where there is none."""
    children = [_child(array, child.name, child.type) for child in DV_TYPE]
    return pa.StructArray.from_arrays(children, fields=list(DV_TYPE), mask=pc.is_null(children[0]))
