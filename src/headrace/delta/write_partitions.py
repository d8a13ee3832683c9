"""Partition values as the log and the folders have them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.schema import Field, Primitive, Struct
from headrace.exceptions import WriteRequestError

# What Hive, and so Delta, escapes in the name of a partition's folder.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(1, 0x20)}
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME = 200

PartitionValues = dict[str, str | None]


def split_by_partition(
    data: pa.Table, columns: Sequence[Field]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """The rows of each partition, with the partition's values by physical name.

    Args:
        data: Rows in the table's types, named as users name them.
        columns: The partition columns.
    """
    if not columns:
        yield {}, data
        return
    codes = _group_codes(data, [column.name for column in columns])
    # Sorting is a matter of counting where numbers are short, as they are for most tables.
    short = codes.astype(np.uint16) if codes.max(initial=0) < 1 << 16 else codes
    order = np.argsort(short, kind="stable")
    together = data.take(pa.array(order))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], data.num_rows], strict=True):
        part = together.slice(start, end - start)
        values = {column.physical_name: partition_text(part[column.name][0]) for column in columns}
        yield values, part.drop_columns([column.name for column in columns])


def _group_codes(data: pa.Table, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number per row that tells the partitions apart; null and NaN are values of their own."""
    codes, _ = _codes(data[names[0]])
    for name in names[1:]:
        encoded, count = _codes(data[name])
        # Numbered anew for each column: products of many columns would overflow.
        _, codes = np.unique(codes * count + encoded, return_inverse=True)
    return codes.astype(np.int64)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64), 1
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    return encoded.indices.to_numpy().astype(np.int64), max(len(encoded.dictionary), 1)


def empty_as_null(data: pa.Table, columns: Sequence[Field]) -> pa.Table:
    """Empty texts of partition columns as nulls, which is what the log makes of them."""
    for child in columns:
        index = data.schema.get_field_index(child.name)
        if pa.types.is_string(data.schema.field(index).type):
            column = data.column(index)
            empty = pc.equal(pc.binary_length(column), 0)
            nulled = pc.if_else(empty, pa.scalar(None, pa.string()), column)
            data = data.set_column(index, data.schema.field(index), nulled)
    return data


def partition_text(value: pa.Scalar) -> str | None:
    """A partition value as the log has it; null is null.

    Raises:
        TypeError: Values of this type can't be partition values.
    """
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        return _time(value)
    return _text(value.as_py())


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return _float(value)
        case Decimal():
            return format(value, "f")
        case datetime() | date():
            return value.isoformat()
    raise TypeError(f"values of type {type(value).__name__} can't be partition values")


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _time(value: pa.Scalar) -> str:
    moment: datetime = value.as_py()
    if value.type.tz is None:
        return moment.isoformat(sep=" ", timespec="microseconds")
    # With the zone in the text, no reader has to know the writer's session.
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def partition_folder(values: PartitionValues) -> str:
    """The folder of a partition, not encoded: `year=2026/city=S%3Ao`, or an empty text."""
    return "/".join(f"{_folder_name(name)}={_folder_name(v)}" for name, v in values.items())


def _folder_name(text: str | None) -> str:
    if text is None or text == "":
        return _NULL_FOLDER
    name = "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    # File systems end at 255 bytes; the value itself is in the log.
    return hashlib.sha256(text.encode()).hexdigest()


def encode_path(path: str) -> str:
    """A path as an `add` action has it: percent-encoded."""
    return quote(path, safe="/=")


def partition_names(table: str, schema: Struct, names: Sequence[str]) -> tuple[str, ...]:
    """The partition columns as the schema spells them.

    Raises:
        WriteRequestError: A column is missing, or can't be a partition column.
    """
    problems, found = [], []
    for name in names:
        child = schema.find(name)
        if child is None:
            problems.append(f"partition column {name!r} is not in the data")
            continue
        found.append(child.name)
        if not isinstance(child.type, Primitive) or child.type.name == "binary":
            problems.append(f"{name!r} can't be a partition column, its type has no text form")
    if names and len(names) >= len(schema.fields):
        problems.append("a data file needs a column that is not a partition column")
    if problems:
        raise WriteRequestError(
            table=table,
            problem="; ".join(problems),
            found=f"Columns: {', '.join(schema.names)}.",
            fix="partition_by=[...] with columns of the data that have few values",
        )
    return tuple(found)
