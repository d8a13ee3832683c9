"""Turn what a file holds into what the table promises: names, missing fields, types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.calendar import Rebase, rebase_days, rebase_micros
from headrace.delta.schema import (
    Array,
    DeltaType,
    Field,
    Map,
    Primitive,
    Struct,
    with_char_types,
)
from headrace.delta.types import arrow_type
from headrace.delta.variants import conform_variant

_FIELD_ID = b"PARQUET:field_id"
_INT32_BITS, _INT64_BITS = 32, 64


class MismatchError(Exception):
    """A column can't become the table's type; the caller knows the file's name."""

    def __init__(self, column: str, found: object, wanted: object) -> None:
        super().__init__(f"{column}: {found} is not {wanted}")
        self.column, self.found, self.wanted = column, str(found), str(wanted)


@dataclass(frozen=True)
class FileRules:
    """How one file is read.

    Attributes:
        mapping_mode: `none`, `name` or `id`.
        rebase: The calendar of its dates and times.
        int96: Whether the column at hand holds INT96 times.
    """

    mapping_mode: str = "none"
    rebase: Rebase = field(default_factory=Rebase)
    int96: bool = False


def find_child(children: Sequence[pa.Field], wanted: Field, mode: str) -> int | None:
    """Which field of a file belongs to a field of the table, or None when it has none.

    Args:
        children: The file's fields, with Parquet field ids in their metadata.
        wanted: The table's field.
        mode: Column-mapping mode. By name, upper and lower case are the same, as in Spark.

    Raises:
        MismatchError: Two fields of the file fit.
    """
    if mode == "id" and wanted.field_id is not None:
        number = str(wanted.field_id).encode()
        found = [
            index
            for index, child in enumerate(children)
            if (child.metadata or {}).get(_FIELD_ID) == number
        ]
    else:
        name = wanted.physical_name.lower()
        found = [index for index, child in enumerate(children) if child.name.lower() == name]
    if len(found) > 1:
        names = ", ".join(children[index].name for index in found)
        raise MismatchError(wanted.name, f"several fields that fit ({names})", "one column")
    return found[0] if found else None


def conform_column(array: pa.Array, source: pa.Field, wanted: Field, rules: FileRules) -> pa.Array:
    """Turn one column of a file into the table's column.

    Args:
        array: The values.
        source: The file's field, which knows the Parquet ids of nested fields.
        wanted: The table's field.
        rules: The file's calendar and the table's mapping mode.

    Raises:
        MismatchError: The values can't become that type without loss.
    """
    return _conform(array, source.type, with_char_types(wanted), rules, wanted.name)


def _conform(
    array: pa.Array, source: pa.DataType, wanted: DeltaType, rules: FileRules, name: str
) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow_type(wanted))
    match wanted:
        case Struct() if pa.types.is_struct(source):
            return _conform_struct(array, source, wanted, rules, name)
        case Array(element) if _is_list(source):
            return _conform_list(array, source, element, rules, name)
        case Map() if pa.types.is_map(source):
            return _conform_map(array, source, wanted, rules, name)
        case Primitive("variant") if pa.types.is_struct(source):
            return conform_variant(array)
        case Primitive(kind):
            return _conform_leaf(array, kind, arrow_type(wanted), rules, name)
    raise MismatchError(name, source, arrow_type(wanted))


def _conform_struct(
    array: pa.StructArray, source: pa.DataType, wanted: Struct, rules: FileRules, name: str
) -> pa.Array:
    children = list(source)
    found = []
    for child in wanted.fields:
        index = find_child(children, child, rules.mapping_mode)
        path = f"{name}.{child.name}"
        if index is None:
            found.append(pa.nulls(len(array), arrow_type(child.type)))
            continue
        values = array.field(index)
        found.append(_conform(values, children[index].type, child.type, rules, path))
    if not found:
        return array.cast(pa.struct([]))
    fields = list(arrow_type(wanted))
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(found, fields=fields, mask=mask)


def _conform_list(
    array: pa.Array, source: pa.DataType, element: DeltaType, rules: FileRules, name: str
) -> pa.Array:
    plain = pa.list_(source.value_field)
    array = _compact(array if array.type.id == plain.id else array.cast(plain))
    values, found = array.values, source.value_type
    if _is_bare_struct(source.value_field, element):
        # Writers before Parquet's rules left a level out: the repeated group is the struct itself.
        values = pa.StructArray.from_arrays([values], fields=[source.value_field])
        found = values.type
    values = _conform(values, found, element, rules, f"{name}.element")
    wanted = arrow_type(Array(element))
    mask = pc.is_null(array) if array.null_count else None
    return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=mask)


def _is_bare_struct(found: pa.Field, element: DeltaType) -> bool:
    """Whether an element, taken for a value by Arrow, is the only field of the table's struct."""
    return (
        isinstance(element, Struct)
        and not pa.types.is_struct(found.type)
        and [child.physical_name for child in element.fields] == [found.name]
    )


def _conform_map(
    array: pa.MapArray, source: pa.DataType, wanted: Map, rules: FileRules, name: str
) -> pa.Array:
    array = _compact(array)
    keys = _conform(array.keys, source.key_type, wanted.key, rules, f"{name}.key")
    items = _conform(array.items, source.item_type, wanted.value, rules, f"{name}.value")
    mask = pc.is_null(array) if array.null_count else None
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=arrow_type(wanted), mask=mask)


def _compact(array: pa.Array) -> pa.Array:
    """The same values with offsets from 0: building an array with a mask needs that."""
    return pa.concat_arrays([array]) if array.offset else array


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def pad(array: pa.Array, kind: str) -> pa.Array:
    """Pad the values of a CHAR(n) column with spaces, as Spark does when it reads one."""
    if not kind.startswith("char("):
        return array
    return pc.utf8_rpad(array, width=int(kind[5:-1]), padding=" ")


def _conform_leaf(
    array: pa.Array, kind: str, wanted: pa.DataType, rules: FileRules, name: str
) -> pa.Array:
    if pa.types.is_null(wanted):
        return pa.nulls(len(array), wanted)
    convert = _converter(array.type, wanted)
    if convert is None or (rules.int96 and pa.types.is_integer(wanted)):
        raise MismatchError(name, array.type, kind)
    try:
        converted = convert(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MismatchError(name, f"{array.type}: {error}", kind) from error
    return pad(_rebased(converted, rules), kind)


def _converter(found: pa.DataType, wanted: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    """The lossless way from one Arrow type to another that Spark takes too, or None."""
    if found == wanted:
        return _same
    if pa.types.is_timestamp(wanted):
        return _timestamp_converter(found, wanted)
    number = _bare_number(found)
    if number is not None and pa.types.is_integer(wanted):
        return _number_converter(number, wanted)
    is_number = pa.types.is_decimal128(found) and pa.types.is_binary(wanted)
    if is_number or (_is_bytes(found) and _is_bytes(wanted)):
        return lambda array: _bytes(array, wanted)
    narrower = pa.types.is_floating(found) and found.bit_width > wanted.bit_width
    if narrower or not any(is_from(found) and is_to(wanted) for is_from, is_to in _WIDENINGS):
        return None
    safe = not _wraps(found, wanted)
    days = pa.types.is_integer(found) and pa.types.is_date(wanted)
    return lambda array: (array.cast(pa.int32()) if days else array).cast(wanted, safe=safe)


def _bare_number(found: pa.DataType) -> pa.DataType | None:
    """The integers that a file keeps dates or times as: Spark takes them for a number column."""
    if pa.types.is_date32(found) or pa.types.is_time32(found):
        return pa.int32()
    if pa.types.is_timestamp(found) or pa.types.is_time64(found):
        return pa.int64()
    return None


def _number_converter(
    number: pa.DataType, wanted: pa.DataType
) -> Callable[[pa.Array], pa.Array] | None:
    convert = _converter(number, wanted)
    if convert is None or wanted.bit_width < number.bit_width == _INT64_BITS:
        return None
    return lambda array: convert(array.cast(number))


def _wraps(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark keeps the lowest bits: Parquet's 32-bit integers as BYTE or SHORT.

    An unsigned byte of 255 in a BYTE column is -1 then.
    """
    both = pa.types.is_integer(found) and pa.types.is_integer(wanted)
    return bool(both and found.bit_width <= _INT32_BITS and wanted.bit_width < _INT32_BITS)


def _is_short(found: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(found) and found.bit_width <= _INT32_BITS)


def _same(array: pa.Array) -> pa.Array:
    return array


def _timestamp_converter(
    found: pa.DataType, wanted: pa.DataType
) -> Callable[[pa.Array], pa.Array] | None:
    if pa.types.is_date(found) and wanted.tz is None:
        return lambda array: array.cast(wanted)
    if not pa.types.is_timestamp(found):
        return None
    # The zone says how to show a time, not which one it is: only the unit can lose something.
    unit = pa.timestamp("us", tz=found.tz)
    return lambda array: array.cast(unit).cast(pa.int64()).cast(wanted)


def _bytes(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Between text and binary kinds; texts of a file are not checked again, as in Spark."""
    if pa.types.is_decimal(array.type):
        return _decimal_bytes(array)
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return array.cast(wanted, safe=False)


def _decimal_bytes(array: pa.Array) -> pa.Array:
    """The bytes that a file keeps decimals as: big-endian, as many as the precision needs."""
    size = (10**array.type.precision).bit_length() // 8 + 1
    whole = np.frombuffer(array.buffers()[1], np.uint8, 16 * len(array), 16 * array.offset)
    cut = whole.reshape(-1, 16)[:, :size][:, ::-1]
    return pa.array([row.tobytes() for row in cut], pa.binary(), mask=_nulls(array))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


_WIDENINGS = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_date, pa.types.is_date),
    (_is_short, pa.types.is_date32),  # a writer that left DATE out
    (pa.types.is_int64, pa.types.is_duration),  # how Spark stores intervals
    (lambda found: pa.types.is_decimal(found) and found.scale == 0, pa.types.is_integer),
)


def _rebased(array: pa.Array, rules: FileRules) -> pa.Array:
    """Shift old dates and times of a file that counts in the Julian calendar."""
    if pa.types.is_date(array.type) and rules.rebase.dates:
        days = _to_numpy(array.cast(pa.int32())).astype(np.int64)
        shifted = pa.array(rebase_days(days).astype(np.int32), mask=_nulls(array))
        return shifted.cast(array.type)
    legacy = rules.rebase.int96 if rules.int96 else rules.rebase.dates
    if pa.types.is_timestamp(array.type) and array.type.tz and legacy:
        micros = _to_numpy(array.cast(pa.int64()))
        shifted = pa.array(rebase_micros(micros, rules.rebase.zone), mask=_nulls(array))
        return shifted.cast(array.type)
    return array


def _to_numpy(array: pa.Array) -> np.ndarray:
    values: np.ndarray = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return values


def _nulls(array: pa.Array) -> np.ndarray:
    mask: np.ndarray = array.is_null().to_numpy(zero_copy_only=False)
    return mask
