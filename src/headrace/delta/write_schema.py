"""Which schema a write ends up with: the table's, a new one, or the table's with columns added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.delta.guards import writer_features
from headrace.delta.protocol import Protocol
from headrace.delta.schema import (
    MAPPING_NAME,
    Array,
    DeltaType,
    Field,
    Map,
    Primitive,
    Struct,
    parse_schema,
    walk_types,
)
from headrace.delta.write_columns import match_names
from headrace.delta.write_types import VOID, delta_type, to_json, type_name, widest
from headrace.exceptions import SchemaMismatchError, UnwritableTypeError

if TYPE_CHECKING:
    import pyarrow as pa

_NTZ = "timestampNtz"
_FEATURES_READER, _FEATURES_WRITER = 3, 7


def data_schema(table: str, schema: pa.Schema) -> Struct:
    """The Delta schema that holds Arrow data; columns of nulls only have the type `void`.

    Raises:
        UnwritableTypeError: Delta has no type for a column.
    """
    match_names(table, schema.names)
    return Struct(tuple(Field(child.name, _type_of(table, child)) for child in schema))


def _type_of(table: str, child: pa.Field) -> DeltaType:
    try:
        return delta_type(child.type)
    except TypeError as error:
        raise UnwritableTypeError(
            table=table,
            column=child.name,
            problem=str(error),
            found="",
            fix="convert the column before the write, for example with ds.map_batches",
        ) from error


def extend(base: DeltaType, found: DeltaType) -> DeltaType:
    """The base type with the fields that only the data has; where both have a type, the base's."""
    if base == VOID:
        return found
    match base, found:
        case Struct(), Struct():
            fields = [_extend_field(child, found) for child in base.fields]
            fields += [child for child in found.fields if base.find(child.name) is None]
            return Struct(tuple(fields))
        case Array(element, nulls), Array(other):
            return Array(extend(element, other), nulls)
        case Map(key, value, nulls), Map(other_key, other_value):
            return Map(extend(key, other_key), extend(value, other_value), nulls)
    return base


def _extend_field(child: Field, found: Struct) -> Field:
    other = found.find(child.name)
    return child if other is None else replace(child, type=extend(child.type, other.type))


def extend_schema(base: Struct, found: Struct) -> Struct:
    """`extend` for whole schemas."""
    extended = extend(base, found)
    return extended if isinstance(extended, Struct) else base


def unify(table: str, schemas: Iterable[Struct]) -> Struct:
    """The one schema of what several workers wrote.

    Raises:
        SchemaMismatchError: Two of them stored a column differently.
    """
    result: Struct | None = None
    for schema in schemas:
        merged = schema if result is None else widest(result, schema)
        if not isinstance(merged, Struct):
            raise _disagreement(table, result or schema, schema)
        result = merged
    return result or Struct(())


def _disagreement(table: str, left: Struct, right: Struct) -> SchemaMismatchError:
    for child in left.fields:
        other = right.find(child.name)
        if other is not None and widest(child.type, other.type) is None:
            break
    return SchemaMismatchError(
        table=table,
        problem=f"blocks of the data differ in the type of column {child.name!r}",
        found=f"{type_name(child.type)} and {type_name(other.type if other else VOID)}.",
        fix="give the column one type in all blocks, for example with astype in ds.map_batches",
    )


def check_complete(table: str, schema: Struct) -> None:
    """Refuse a new schema that has no columns, or a column without a type."""
    if not schema.fields:
        raise SchemaMismatchError(
            table=table,
            problem="it has no columns, and the table does not exist yet",
            found="A new table takes its columns from the data.",
            fix="give the data a schema: ray.data.from_arrow(schema.empty_table())",
        )
    for child in schema.fields:
        if any(kind == VOID for kind in walk_types(child.type)):
            raise UnwritableTypeError(
                table=table,
                column=child.name,
                problem="it holds nulls only, so it has no type",
                found=f"Found {type_name(child.type)}.",
                fix="cast it to a type, or drop it",
            )


def storable(schema: Struct) -> Struct:
    """The columns that a data file has: all but those without a type, which are null."""
    return Struct(tuple(child for child in schema.fields if child.type != VOID))


def schema_json(schema: Struct) -> str:
    """A schema as a `schemaString`."""
    return json.dumps(to_json(schema), separators=(",", ":"))


def evolved(schema_string: str, written: Struct) -> Struct | None:
    """The table's schema with the new columns, or None when there are none.

    What the string says about the columns that it has stays as it is.
    """
    before = parse_schema(schema_string)
    after = extend_schema(before, _nullable(written))
    return None if after == before else after


def _nullable(schema: Struct) -> Struct:
    """New columns may be null: the rows that are there already don't have them."""

    def kept(child: Field) -> dict[str, Any]:
        return {key: value for key, value in child.metadata.items() if key == MAPPING_NAME}

    return Struct(
        tuple(replace(child, nullable=True, metadata=kept(child)) for child in schema.fields)
    )


def protocol_for(schema: Struct, before: Protocol | None) -> dict[str, Any] | None:
    """The `protocol` action that a schema needs, or None when the table's is enough."""
    ntz = any(kind == Primitive("timestamp_ntz") for kind in walk_types(schema))
    if before is None and not ntz:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    if before is not None and (not ntz or _NTZ in before.reader_features):
        return None
    legacy = writer_features(before) if before else {"appendOnly", "invariants"}
    readers = before.reader_features if before else frozenset()
    return {
        "protocol": {
            "minReaderVersion": _FEATURES_READER,
            "minWriterVersion": _FEATURES_WRITER,
            "readerFeatures": sorted({*readers, _NTZ}),
            "writerFeatures": sorted({*legacy, *readers, _NTZ}),
        }
    }


def same_columns(left: Struct, right: Struct) -> bool:
    """Whether two schemas store the same columns in the same types."""
    return _bare(left) == _bare(right)


def _bare(schema: Struct) -> list[tuple[str, str]]:
    return [(child.name, type_name(child.type)) for child in schema.fields]


def partition_fields(schema: Struct, names: Sequence[str]) -> list[Field]:
    """The fields of partition columns, in order."""
    return [found for name in names if (found := schema.find(name)) is not None]
