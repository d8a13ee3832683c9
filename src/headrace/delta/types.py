"""Delta types as Arrow types: what a block of the table holds."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.delta.schema import Array, DeltaType, Map, Primitive, Struct

# Intervals of days to seconds; Spark has no Python value for those of years and months.
INTERVAL = re.compile(r"^interval (day|hour|minute|second)( to (hour|minute|second))?$")
_DECIMAL = re.compile(r"^decimal\((\d+)\s*,\s*(-?\d+)\)$")

# Fields in the order of Spark's own Arrow export.
VARIANT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])

_PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": VARIANT,
    "decimal": pa.decimal128(10, 0),
}


def arrow_type(kind: DeltaType) -> pa.DataType:
    """The Arrow type that a column of this Delta type is read as.

    Plain types only (no views, no dictionaries, no 64-bit offsets), since Ray's sort, groupby and
    filter and pandas all take them. A variant is a struct of its two binaries.

    Raises:
        ValueError: The type is not known.
    """
    match kind:
        case Struct(fields):
            return pa.struct([pa.field(child.name, arrow_type(child.type)) for child in fields])
        case Array(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Primitive(name):
            return _primitive(name)


def arrow_schema(schema: Struct) -> pa.Schema:
    """The Arrow schema of a table."""
    return pa.schema([pa.field(child.name, arrow_type(child.type)) for child in schema.fields])


def _primitive(name: str) -> pa.DataType:
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    if match := _DECIMAL.match(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if INTERVAL.match(name):
        return pa.duration("us")
    if name.startswith(("char(", "varchar(")):
        return pa.string()
    raise ValueError(f"unknown Delta type {name!r}")
