"""Which Delta type an Arrow type becomes, and how a value is stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.delta.schema import Array, DeltaType, Field, Map, Primitive, Struct
from headrace.delta.types import arrow_type

VOID = Primitive("void")
"""Type of a column that has had nulls only so far; it fits every other type."""

_MAX_PRECISION = 38


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the string types."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_bytes(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the binary types."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the list types."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


# Unsigned types take the next signed one; the longest is checked value by value.
_FROM_ARROW = [
    (pa.types.is_null, "void"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (lambda kind: pa.types.is_int16(kind) or pa.types.is_uint8(kind), "short"),
    (lambda kind: pa.types.is_int32(kind) or pa.types.is_uint16(kind), "integer"),
    (pa.types.is_integer, "long"),
    (lambda kind: pa.types.is_float16(kind) or pa.types.is_float32(kind), "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (is_bytes, "binary"),
    (pa.types.is_date, "date"),
]


def stored_type(kind: DeltaType, *, physical: bool = False) -> pa.DataType:
    """The Arrow type that a Delta type is kept as, in memory and in a data file.

    Args:
        kind: The Delta type.
        physical: Whether struct fields take the names and ids of column mapping.

    Raises:
        KeyError: The type can't be stored by this writer.
    """
    match kind:
        case Struct(fields):
            return pa.struct([stored_field(child, physical=physical) for child in fields])
        case Array(element):
            return pa.list_(pa.field("element", stored_type(element, physical=physical)))
        case Map(key, value):
            return pa.map_(
                stored_type(key, physical=physical), stored_type(value, physical=physical)
            )
        case Primitive(name) if name.startswith("variant"):
            raise KeyError(name)
        case Primitive():
            return arrow_type(kind)
    raise TypeError(kind)


def stored_field(child: Field, *, physical: bool = False) -> pa.Field:
    """The Arrow field of a column; every field may hold nulls in a file, as Spark writes it."""
    kind = stored_type(child.type, physical=physical)
    if not physical:
        return pa.field(child.name, kind)
    ids = {} if child.field_id is None else {b"PARQUET:field_id": str(child.field_id).encode()}
    return pa.field(child.physical_name, kind, metadata=ids)


def delta_type(kind: pa.DataType) -> DeltaType:
    """The Delta type that holds every value of an Arrow type.

    Raises:
        TypeError: Delta has no such type; the text says which and what to do.
    """
    for test, name in _FROM_ARROW:
        if test(kind):
            return Primitive(name)
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(kind)
    if pa.types.is_timestamp(kind):
        return Primitive("timestamp_ntz" if kind.tz is None else "timestamp")
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    return _nested(kind)


def _nested(kind: pa.DataType) -> DeltaType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return delta_type(kind.value_type)
    if is_list(kind):
        return Array(delta_type(kind.value_type))
    if pa.types.is_map(kind):
        return Map(delta_type(kind.key_type), delta_type(kind.item_type))
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(child.name, delta_type(child.type)) for child in kind))
    raise TypeError(refusal(kind))


def refusal(kind: pa.DataType) -> str:
    """Why an Arrow type can't be stored."""
    if pa.types.is_duration(kind):
        return f"Delta has no durations ({kind}); store seconds or microseconds as a number"
    if pa.types.is_time(kind):
        return f"Delta has no time of day ({kind}); store microseconds since midnight, or text"
    if pa.types.is_interval(kind):
        return f"Delta has no intervals ({kind}); store its parts as numbers"
    return f"Delta has no type for {kind}"


def _decimal(kind: pa.DataType) -> Primitive:
    if kind.precision > _MAX_PRECISION or kind.scale < 0 or kind.scale > kind.precision:
        raise TypeError(f"Delta's decimals have up to 38 digits, {kind} does not fit")
    return Primitive(f"decimal({kind.precision},{kind.scale})")


def tensor_rank(kind: pa.DataType) -> int | None:
    """Number of dimensions of a tensor type (Ray's or Arrow's), or None for another type."""
    if not isinstance(kind, pa.BaseExtensionType):
        return None
    name = kind.extension_name
    if name.startswith("ray.data.arrow_tensor") or name == "arrow.fixed_shape_tensor":
        return len(kind.shape)
    return int(kind.ndim) if name == "ray.data.arrow_variable_shaped_tensor" else None


def _extension(kind: Any) -> DeltaType:
    rank = tensor_rank(kind)
    if rank is not None:
        values = kind.storage_type
        if pa.types.is_struct(values):
            values = values.field("data").type
        inner = delta_type(values.value_type)
        for _ in range(rank):
            inner = Array(inner)
        return inner
    if kind.extension_name in ("arrow.json", "arrow.bool8"):
        return Primitive("string" if kind.extension_name == "arrow.json" else "boolean")
    if kind.extension_name == "ray.data.arrow_pickled_object":
        raise TypeError("it holds Python objects; turn them into numbers, text, lists or structs")
    raise TypeError(f"Delta has no type for the extension type {kind.extension_name}")


def widest(left: DeltaType, right: DeltaType) -> DeltaType | None:
    """The type that both parts of a new column agree on, or None.

    Only a missing type gives way: files of one table must not differ in how a column is stored.
    """
    if right in (left, VOID):
        return left
    if left == VOID:
        return right
    match left, right:
        case Array(a), Array(b):
            element = widest(a, b)
            return None if element is None else Array(element)
        case Map(k1, v1), Map(k2, v2):
            key, value = widest(k1, k2), widest(v1, v2)
            return None if key is None or value is None else Map(key, value)
        case Struct(), Struct():
            return _widest_struct(left, right)
    return None


def _widest_struct(left: Struct, right: Struct) -> Struct | None:
    fields = []
    for child in left.fields:
        other = right.find(child.name)
        kind = child.type if other is None else widest(child.type, other.type)
        if kind is None:
            return None
        fields.append(Field(child.name, kind, child.nullable, child.metadata))
    fields += [child for child in right.fields if left.find(child.name) is None]
    return Struct(tuple(fields))


def type_name(kind: DeltaType) -> str:
    """A Delta type as Spark's SQL writes it, for error texts."""
    match kind:
        case Array(element):
            return f"array<{type_name(element)}>"
        case Map(key, value):
            return f"map<{type_name(key)},{type_name(value)}>"
        case Struct(fields):
            inner = ",".join(f"{child.name}:{type_name(child.type)}" for child in fields)
            return f"struct<{inner}>"
        case Primitive(name):
            return name
    raise TypeError(kind)


def to_json(kind: DeltaType) -> Any:
    """A type as the JSON of a `schemaString`."""
    match kind:
        case Primitive(name):
            return name
        case Array(element, nulls):
            return {"type": "array", "elementType": to_json(element), "containsNull": nulls}
        case Map(key, value, nulls):
            return {
                "type": "map",
                "keyType": to_json(key),
                "valueType": to_json(value),
                "valueContainsNull": nulls,
            }
        case Struct(fields):
            return {"type": "struct", "fields": [field_json(child) for child in fields]}
    raise TypeError(kind)


def field_json(child: Field) -> dict[str, Any]:
    """A field as the JSON of a `schemaString`."""
    return {
        "name": child.name,
        "type": to_json(child.type),
        "nullable": child.nullable,
        "metadata": dict(child.metadata),
    }
