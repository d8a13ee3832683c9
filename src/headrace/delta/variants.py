"""Variants: the two binaries of Spark's VARIANT type, put together where a file shreds them.

Source: "Variant Shredding" of the Parquet format.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.types import VARIANT
from headrace.delta.variant_builder import (
    Entry,
    VariantBuilder,
    is_object,
    metadata_keys,
    object_fields,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def conform_variant(array: pa.StructArray) -> pa.Array:
    """A file's variant column as a struct of `value` and `metadata`.

    Shredded columns are put together row by row, in the bytes that Spark makes of them.
    """
    names = [child.name for child in array.type]
    if "typed_value" in names:
        rows = [None if row is None else _rebuilt(row, array.type) for row in array.to_pylist()]
        return pa.array(rows, VARIANT)
    children = [array.field(names.index(child.name)).cast(child.type) for child in VARIANT]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(VARIANT), mask=mask)


def _rebuilt(row: dict[str, Any], kind: pa.StructType) -> dict[str, bytes]:
    builder = VariantBuilder()
    _rebuild(row, kind, metadata_keys(row["metadata"]), builder)
    value, metadata = builder.result()
    return {"value": value, "metadata": metadata}


def _rebuild(
    row: dict[str, Any], kind: pa.StructType, keys: list[str], builder: VariantBuilder
) -> None:
    typed, rest = row.get("typed_value"), row.get("value")
    if typed is None:
        builder.append_variant(b"\x00" if rest is None else rest, keys)
        return
    wanted = kind.field("typed_value").type
    if pa.types.is_struct(wanted):
        _rebuild_object(typed, rest, wanted, keys, builder)
    elif pa.types.is_list(wanted):
        start, offsets = builder.position, []
        for element in typed:
            offsets.append(builder.position - start)
            _rebuild(element, wanted.value_type, keys, builder)
        builder.finish_array(start, offsets)
    else:
        _append_scalar(typed, wanted, builder)


def _rebuild_object(
    typed: dict[str, Any],
    rest: bytes | None,
    kind: pa.StructType,
    keys: list[str],
    builder: VariantBuilder,
) -> None:
    start = builder.position
    entries: list[Entry] = []
    for child in kind:
        field = typed[child.name]
        if field.get("typed_value") is not None or field.get("value") is not None:
            number = builder.add_key(child.name)
            entries.append((child.name, number, builder.position - start))
            _rebuild(field, child.type, keys, builder)
    if rest is not None and is_object(rest):
        for number, position in object_fields(rest):
            key = keys[number]
            entries.append((key, builder.add_key(key), builder.position - start))
            builder.append_variant(rest, keys, position)
    builder.finish_object(start, entries)


def _append_scalar(value: Any, kind: pa.DataType, builder: VariantBuilder) -> None:
    if pa.types.is_boolean(kind):
        builder.append_boolean(value=value)
    elif pa.types.is_integer(kind):
        builder.append_integer(value)
    elif pa.types.is_floating(kind):
        builder.append_float(value, double=kind.bit_width == 64)  # noqa: PLR2004
    elif pa.types.is_decimal(kind):
        builder.append_decimal(value)
    elif pa.types.is_string(kind):
        builder.append_text(value)
    elif pa.types.is_date(kind):
        builder.append_date((value - date(1970, 1, 1)).days)
    elif pa.types.is_timestamp(kind):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        micros = (moment - _EPOCH) // timedelta(microseconds=1)
        builder.append_timestamp(micros, zoned=kind.tz is not None)
    elif pa.types.is_fixed_size_binary(kind):
        builder.append_uuid(value)
    else:
        builder.append_binary(value)
