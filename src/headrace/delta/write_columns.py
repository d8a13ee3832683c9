"""Turn Arrow columns into what a table's schema says, or refuse; nothing is lost silently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.schema import Array, DeltaType, Map, Primitive, Struct
from headrace.delta.write_types import (
    delta_type,
    is_bytes,
    is_list,
    is_text,
    stored_field,
    stored_type,
    tensor_rank,
    type_name,
)
from headrace.exceptions import SchemaMismatchError, UnwritableTypeError


@dataclass(frozen=True)
class Columns:
    """Converts the columns of one table.

    Attributes:
        table: Name of the table, for error texts.
    """

    table: str

    def convert(self, data: pa.Table, schema: Struct) -> pa.Table:
        """The data with the schema's columns, in its order and types.

        Columns are matched without regard to case. A missing column is filled with nulls.

        Args:
            data: The rows; it has no columns that the schema lacks.
            schema: What to store.
        """
        found = match_names(self.table, data.schema.names)
        columns = []
        for child in schema.fields:
            index = found.get(child.name.lower())
            if index is None:
                columns.append(pa.nulls(data.num_rows, self._stored(child.type, child.name)))
            else:
                columns.append(self._column(_single(data.column(index)), child.type, child.name))
        return pa.table(columns, schema=pa.schema([stored_field(f) for f in schema.fields]))

    def _column(self, array: pa.Array, kind: DeltaType, path: str) -> pa.Array:
        array = self._plain(array, path)
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), self._stored(kind, path))
        match kind:
            case Struct():
                return self._struct(array, kind, path)
            case Array(element):
                return self._array(array, element, path)
            case Map(key, value):
                return self._map(array, key, value, path)
            case Primitive(name):
                return self._primitive(array, name, path)

    def _stored(self, kind: DeltaType, path: str) -> pa.DataType:
        try:
            return stored_type(kind)
        except KeyError as error:
            problem = f"a column of type {type_name(kind)} is not supported"
            raise self._refused(path, problem) from error

    def _struct(self, array: pa.Array, kind: Struct, path: str) -> pa.Array:
        if not pa.types.is_struct(array.type):
            raise self._refused(path, f"{array.type} is not {type_name(kind)}")
        names = [child.name for child in array.type]
        found = match_names(self.table, names, path)
        refuse_extra(self.table, [name for name in names if kind.find(name) is None], kind, path)
        # flatten(), unlike field(), passes a null parent on to its children.
        parts = array.flatten()
        children = []
        for child in kind.fields:
            index = found.get(child.name.lower())
            inner = f"{path}.{child.name}"
            if index is None:
                children.append(pa.nulls(len(array), self._stored(child.type, inner)))
            else:
                children.append(self._column(parts[index], child.type, inner))
        fields = [stored_field(child) for child in kind.fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))

    def _array(self, array: pa.Array, element: DeltaType, path: str) -> pa.Array:
        if not is_list(array.type):
            raise self._refused(path, f"{array.type} is not a list")
        values = self._column(array.flatten(), element, f"{path}.element")
        return _lists(values, pc.list_value_length(array), self._stored(Array(element), path))

    def _map(self, array: pa.Array, key: DeltaType, value: DeltaType, path: str) -> pa.Array:
        if not pa.types.is_map(array.type):
            raise self._refused(path, f"{array.type} is not a map")
        # A slice's keys are those of the whole array; taking every row leaves its own only.
        array = array.take(pa.array(np.arange(len(array))))
        keys = self._column(array.keys, key, f"{path}.key")
        items = self._column(array.items, value, f"{path}.value")
        kind = self._stored(Map(key, value), path)
        return pa.MapArray.from_arrays(
            array.offsets.cast(pa.int32()), keys, items, type=kind, mask=pc.is_null(array)
        )

    def _plain(self, array: pa.Array, path: str) -> pa.Array:
        """Undo encodings: what is left is a plain Arrow type."""
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            return self._plain(self._extension(array, path), path)
        if pa.types.is_dictionary(kind):
            # cast() refuses some value types; taking from the dictionary works for each.
            return self._plain(array.dictionary.take(array.indices), path)
        if pa.types.is_run_end_encoded(kind):
            return self._plain(pc.run_end_decode(array), path)
        return array.cast(pa.float32()) if pa.types.is_float16(kind) else array

    def _extension(self, array: pa.ExtensionArray, path: str) -> pa.Array:
        kind = array.type
        try:
            delta_type(kind)
        except TypeError as error:
            raise self._refused(path, str(error)) from error
        rank = tensor_rank(kind)
        if rank is None:
            storage = array.storage
            return storage.cast(pa.bool_()) if kind.extension_name == "arrow.bool8" else storage
        if pa.types.is_struct(kind.storage_type):
            return _ragged(array.storage, rank)
        return _shaped(array.storage, kind.shape)

    def _primitive(self, array: pa.Array, name: str, path: str) -> pa.Array:
        target = self._stored(Primitive(name), path)
        if array.type == target:
            return array
        convert = _conversion(array.type, target)
        if convert is None:
            raise self._refused(path, _why_not(array.type, name))
        try:
            return convert(array, target)
        except (pa.ArrowInvalid, _InexactError) as error:
            problem = f"{array.type} does not fit {name} without loss: {error}"
            raise self._refused(path, problem) from error

    def _refused(self, path: str, problem: str) -> UnwritableTypeError:
        return UnwritableTypeError(
            table=self.table,
            column=path,
            problem=problem,
            found="",
            fix="cast the column before the write, for example with ds.map_batches",
        )


def refuse_extra(table: str, extra: Sequence[str], schema: Struct, path: str = "") -> None:
    """Refuse columns that a table lacks."""
    if not extra:
        return
    where = f"{path} has a field" if path else "it has a column"
    raise SchemaMismatchError(
        table=table,
        problem=f"{where} that the table lacks: {', '.join(extra)}",
        found=f"The table has: {', '.join(schema.names)}.",
        fix='drop it, or pass schema_mode="merge" to add it to the table',
    )


def match_names(table: str, names: Sequence[str], path: str = "") -> dict[str, int]:
    """Position of each name in lower case.

    Raises:
        SchemaMismatchError: Two names differ in case only, which Delta does not allow.
    """
    found: dict[str, int] = {}
    for index, name in enumerate(names):
        if name.lower() in found:
            raise SchemaMismatchError(
                table=table,
                problem=f"two columns are named {name!r}, upper and lower case being the same",
                found=f"Inside {path}." if path else "",
                fix="rename one of them",
            )
        found[name.lower()] = index
    return found


def _single(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


class _InexactError(Exception):
    """A number would change."""


def _exact(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast numbers, there and back again; NaN counts as equal to itself."""
    result = array.cast(target, safe=False)
    back = result.cast(array.type, safe=False)
    same = pc.equal(array, back)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(array), pc.is_nan(back)))
    if pc.all(same).as_py() is False:
        index = pc.index(same, pa.scalar(value=False)).as_py()
        raise _InexactError(f"{array[index]} would become {result[index]}")
    return result


def _checked(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast, or fail at the first value that would change.

    Floats that are whole numbers pass: pandas keeps integers with gaps as floats.
    """
    return array.cast(target)


def _to_utc(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Without a zone it is read as UTC: that is what numpy makes of a zoned column on the way.
    return array.cast(pa.timestamp("us", array.type.tz)).cast(target)


def _to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    # 20 digits hold every integer; from there the cast looks at the values, not at the type.
    return array.cast(pa.decimal128(20, 0)).cast(target)


_Test = Callable[[pa.DataType], bool]
_Convert = Callable[[pa.Array, pa.DataType], pa.Array]
_is = pa.types

_CONVERSIONS: list[tuple[_Test, _Test, _Convert]] = [
    (is_text, _is.is_string, _checked),
    (is_bytes, _is.is_binary, _checked),
    (_is.is_integer, _is.is_integer, _checked),
    (_is.is_floating, _is.is_integer, _checked),
    (_is.is_floating, _is.is_floating, _exact),
    (_is.is_integer, _is.is_floating, _exact),
    (_is.is_decimal, _is.is_decimal, _checked),
    (_is.is_integer, _is.is_decimal, _to_decimal),
    (_is.is_decimal, _is.is_integer, _checked),
    (_is.is_date, _is.is_date, _checked),
]


def _conversion(source: pa.DataType, target: pa.DataType) -> _Convert | None:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        if target.tz is not None:
            return _to_utc
        return _checked if source.tz is None else None
    if pa.types.is_timestamp(source) and source.tz is None and pa.types.is_date(target):
        return _exact  # numpy has no days of their own: a date comes back as its midnight
    fitting = (convert for a, b, convert in _CONVERSIONS if a(source) and b(target))
    return next(fitting, None)


def _why_not(kind: pa.DataType, name: str) -> str:
    try:
        delta_type(kind)
    except TypeError as error:
        return str(error)
    if pa.types.is_timestamp(kind) and name == "timestamp_ntz":
        return f"{kind} has a time zone, and the table's type {name} has none"
    return f"{kind} is not stored as {name}"


def _lists(values: pa.Array, lengths: pa.Array, kind: pa.DataType) -> pa.Array:
    """A list array from its values in a row and the length of each list (null for a null list)."""
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0).cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=pc.is_null(lengths))


def _shaped(storage: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    """Flat tensors of one shape as lists in lists."""
    values = storage.flatten()
    present = len(storage) - storage.null_count
    # How many lists each level has, from the outermost in.
    counts = list(accumulate(shape[:-1], lambda count, size: count * size, initial=present))
    for count, size in reversed(list(zip(counts[1:], shape[1:], strict=True))):
        offsets = pa.array((index * size for index in range(count + 1)), pa.int64())
        values = pa.LargeListArray.from_arrays(offsets, values)
    lengths = pc.if_else(pc.is_valid(storage), pa.scalar(shape[0], pa.int64()), None)
    return _lists(values, lengths, pa.list_(values.type))


def _ragged(storage: pa.StructArray, rank: int) -> pa.Array:
    """Tensors that differ in shape as lists in lists."""
    data, shapes = storage.flatten()
    kind = data.type.value_type
    for _ in range(rank):
        kind = pa.list_(kind)
    rows = [
        None if flat is None else np.asarray(flat).reshape(shape).tolist()
        for flat, shape in zip(data.to_pylist(), shapes.to_pylist(), strict=True)
    ]
    return pa.array(rows, kind)
