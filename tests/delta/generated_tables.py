"""Delta tables that a test makes up, and how they are written; see `table_strategies`."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tests.delta.handmade import Log
from tests.delta.handmade_tables import portable, z85

FEATURES = ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening"]
LEAVES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(7,2)": pa.decimal128(7, 2),
    "decimal(38,10)": pa.decimal128(38, 10),
}
_NARROWER = {"long": pa.int32(), "integer": pa.int16(), "short": pa.int8()}


@dataclass(frozen=True)
class Kind:
    """A type: a leaf, or `struct`, `array`, `map` with their members."""

    name: str
    members: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Member:
    """A column, a field, or a part of an array or map, with its number in the mapping."""

    name: str
    kind: Kind
    number: int = 0


@dataclass(frozen=True)
class DataFile:
    """One file: its rows, and how they lie in it."""

    rows: tuple[dict[str, Any], ...]
    partition: dict[str, Any]
    missing: frozenset[int]
    deleted: frozenset[int]
    narrow: bool
    with_stats: bool
    options: dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A table."""

    columns: tuple[Member, ...]
    partitions: tuple[str, ...]
    mode: str
    files: tuple[DataFile, ...]
    removed: frozenset[int]
    condition: str | None = field(default=None)

    def write(self, path: str) -> None:
        """Write the table's log and files."""
        log = Log(path)
        conf = {"delta.columnMapping.mode": self.mode} if self.mode != "none" else {}
        fields = [self._field(member) for member in self.columns]
        log.begin(
            *fields, partitions=self.partitions, reader=3, writer=7, features=FEATURES, conf=conf
        )
        for index, data in enumerate(self.files):
            log.commit(self._add(log, index, data))
        if self.removed:
            log.commit(*(self._remove(index) for index in sorted(self.removed)))

    def _field(self, member: Member) -> tuple[str, Any, dict[str, Any]]:
        about = {
            "delta.columnMapping.id": member.number,
            "delta.columnMapping.physicalName": self.physical(member),
        }
        return member.name, self._json(member.kind), about if self.mode != "none" else {}

    def physical(self, member: Member) -> str:
        """The name in statistics and, by name, in files."""
        return member.name if self.mode == "none" else f"col-{member.number}"

    def _in_file(self, member: Member) -> str:
        """The name in files; by id any name will do."""
        return f"any{member.number}" if self.mode == "id" else self.physical(member)

    def _json(self, kind: Kind) -> Any:
        parts = [self._json(member.kind) for member in kind.members]
        if kind.name == "array":
            return {"type": "array", "elementType": parts[0], "containsNull": True}
        if kind.name == "map":
            return {
                "type": "map", "keyType": parts[0], "valueType": parts[1], "valueContainsNull": True,
            }  # fmt: skip
        if kind.name != "struct":
            return kind.name
        rows = [self._field(member) for member in kind.members]
        names = ("name", "type", "metadata")
        return {
            "type": "struct",
            "fields": [{**dict(zip(names, row, strict=True)), "nullable": True} for row in rows],
        }

    def _arrow(self, kind: Kind, data: DataFile) -> pa.DataType:
        if kind.name == "array":
            return pa.list_(pa.field("element", self._arrow(kind.members[0].kind, data)))
        if kind.name == "map":
            return pa.map_(*(self._arrow(member.kind, data) for member in kind.members))
        if kind.name == "struct":
            kept = [member for member in kind.members if member.number not in data.missing]
            return pa.struct([self._arrow_field(member, data) for member in kept])
        return LEAVES[kind.name]

    def _arrow_field(self, member: Member, data: DataFile) -> pa.Field:
        ids = {"PARQUET:field_id": str(member.number)} if self.mode != "none" else None
        return pa.field(self._in_file(member), self._arrow(member.kind, data), metadata=ids)

    def _plain(self, value: Any, kind: Kind, data: DataFile) -> Any:
        """A value with the names of the file."""
        if value is None:
            return None
        if kind.name == "array":
            return [self._plain(item, kind.members[0].kind, data) for item in value]
        if kind.name == "map":
            inner = kind.members[1].kind
            return [(key, self._plain(item, inner, data)) for key, item in value]
        if kind.name == "struct":
            return {
                self._in_file(member): self._plain(value[member.name], member.kind, data)
                for member in kind.members
                if member.number not in data.missing
            }
        return value

    def _add(self, log: Log, index: int, data: DataFile) -> dict[str, Any]:
        members = [
            member
            for member in self.columns
            if member.name not in self.partitions and member.number not in data.missing
        ]
        arrays, fields = [], []
        for member in members[::-1] if index % 2 else members:
            values = [self._plain(row[member.name], member.kind, data) for row in data.rows]
            about = self._arrow_field(member, data)
            array = array_of(values, about.type)
            if data.narrow:
                array = narrowed(array, member.kind.name)
            arrays.append(array)
            fields.append(about.with_type(array.type))
        arrays.append(pa.array(range(len(data.rows)), pa.int64()))
        other = {"PARQUET:field_id": "9999"} if self.mode != "none" else None
        fields.append(pa.field("not_in_the_schema", pa.int64(), metadata=other))
        table = pa.table(arrays, schema=pa.schema(fields))
        dv = vector(data.deleted) if data.deleted else None
        stats = self._stats(members, data) if data.with_stats else None
        return log.file(
            f"f {index}.parquet", table, path=f"f%20{index}.parquet", dv=dv, stats=stats,
            partition=dict(self._partition(data)), **data.options,
        )  # fmt: skip

    def _remove(self, index: int) -> dict[str, Any]:
        deleted = self.files[index].deleted
        return Log.remove(f"f%20{index}.parquet", dv=vector(deleted) if deleted else None)

    def _partition(self, data: DataFile) -> Iterator[tuple[str, str | None]]:
        for member in self.columns:
            if member.name in self.partitions:
                value = data.partition[member.name]
                text = None if value is None else str(value)
                yield self.physical(member), text.lower() if isinstance(value, bool) else text

    def _stats(self, members: list[Member], data: DataFile) -> dict[str, Any]:
        bounds: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for member in members:
            values = [row[member.name] for row in data.rows]
            found = [value for value in values if value is not None]
            if member.kind.name not in ("integer", "long", "short", "date", "string"):
                continue
            name = self.physical(member)
            bounds["nullCount"][name] = len(values) - len(found)
            texts = member.kind.name == "string"
            if found and not (texts and max(map(len, found)) > 31):
                bounds["minValues"][name] = _bound(min(found))
                bounds["maxValues"][name] = _bound(max(found))
        return {"numRecords": len(data.rows), **bounds, "tightBounds": not data.deleted}


def _bound(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as an Arrow array; pyarrow itself stumbles over decimals inside maps."""
    if not pa.types.is_nested(kind):
        return pa.array(values, kind)
    mask = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(kind):
        children = [
            array_of([value and value[child.name] for value in values], child.type)
            for child in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    lengths = [len(value or ()) for value in values]
    offsets = pa.array([0, *itertools.accumulate(lengths)], pa.int32())
    items = [item for value in values for item in value or ()]
    if pa.types.is_list(kind):
        inner = array_of(items, kind.value_type)
        return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=mask)
    keys = pa.array([key for key, _ in items], kind.key_type)
    inner = array_of([item for _, item in items], kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, inner, type=kind, mask=mask)


def vector(rows: frozenset[int]) -> dict[str, Any]:
    """An inline deletion vector."""
    body = portable(sorted(rows))
    return {
        "storageType": "i", "pathOrInlineDv": z85(body), "sizeInBytes": len(body),
        "cardinality": len(rows),
    }  # fmt: skip


def narrowed(array: pa.Array, kind: str) -> pa.Array:
    """The same values in the type that a column had before it was widened, if they fit."""
    if kind == "double":
        with np.errstate(over="ignore"):
            found = array.cast(pa.float32(), safe=False)
        return found if found.cast(pa.float64()).equals(array) else array
    try:
        return array.cast(_NARROWER[kind]) if kind in _NARROWER else array
    except pa.ArrowInvalid:
        return array
