"""The protocol gate: which tables are read, and which are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace.delta.schema import (
    DeltaType,
    Primitive,
    Struct,
    parse_schema,
    walk_fields,
    walk_types,
    without_mapping,
)
from headrace.delta.types import INTERVAL
from headrace.exceptions import UnsupportedTableError

# What a reader has to know, and this one does.
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "geospatial",  # its types are refused, by name, where a column has one
        "geospatial-dev",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
MAPPING_MODE = "delta.columnMapping.mode"


@dataclass(frozen=True)
class Protocol:
    """A `protocol` action.

    Attributes:
        reader: `minReaderVersion`.
        writer: `minWriterVersion`.
        reader_features: Names that a reader has to know; a version number counts as the
            features that it stands for.
        writer_features: Names that only a writer has to know.
    """

    reader: int
    writer: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, action: Mapping[str, Any]) -> Protocol:
        """Read the JSON of the action."""
        reader, writer = int(action["minReaderVersion"]), int(action["minWriterVersion"])
        named = frozenset(action.get("readerFeatures") or ())
        writers = frozenset(action.get("writerFeatures") or ())
        if reader == 2:  # noqa: PLR2004 - the protocol's own number
            named |= {"columnMapping"}
        return cls(reader, writer, named, writers)


@dataclass(frozen=True)
class Metadata:
    """A `metaData` action."""

    id: str
    name: str | None
    description: str | None
    format: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, action: Mapping[str, Any]) -> Metadata:
        """Read the JSON of the action."""
        return cls(
            id=str(action.get("id") or ""),
            name=action.get("name"),
            description=action.get("description"),
            format=str((action.get("format") or {}).get("provider") or "parquet"),
            schema_string=str(action["schemaString"]),
            partition_columns=tuple(action.get("partitionColumns") or ()),
            configuration=dict(action.get("configuration") or {}),
        )

    @property
    def mapping_mode(self) -> str:
        """`none`, `name` or `id`."""
        return str(self.configuration.get(MAPPING_MODE, "none")).lower()

    @cached_property
    def schema(self) -> Struct:
        """The table's schema; physical names and ids only where column mapping is on."""
        parsed = parse_schema(self.schema_string)
        if self.mapping_mode != "none":
            return parsed
        bare: DeltaType = without_mapping(parsed)
        return bare if isinstance(bare, Struct) else parsed

    @property
    def physical_partition_columns(self) -> tuple[str, ...]:
        """The partition columns' names in the log and in files."""
        found = ((self.schema.find(name), name) for name in self.partition_columns)
        return tuple(item.physical_name if item else name for item, name in found)


def check_readable(uri: str, protocol: Protocol, metadata: Metadata) -> None:
    """Refuse a table that would come out wrong.

    Features that only writers have to know never block a read.

    Raises:
        UnsupportedTableError: The table needs something that this reader does not know.
    """
    problems = reader_problems(protocol, metadata)
    if problems:
        raise UnsupportedTableError(
            uri=uri,
            problem="; ".join(problems),
            fix="read it with Spark, or have its owner drop the feature "
            "(ALTER TABLE ... DROP FEATURE ...)",
        )


def reader_problems(protocol: Protocol, metadata: Metadata) -> list[str]:
    """Why a table can't be read, in words; nothing when it can."""
    problems = []
    if protocol.reader > 3:  # noqa: PLR2004
        problems.append(f"it asks for reader version {protocol.reader}, and 3 is the newest known")
    unknown = sorted(protocol.reader_features - READER_FEATURES)
    if unknown:
        problems.append(f"it needs the reader feature {', '.join(unknown)}")
    mode = metadata.mapping_mode
    if mode not in ("none", "name", "id"):
        problems.append(f"its column mapping mode is {mode!r}")
    elif mode != "none":
        # Spark goes by the mode alone, even where the protocol forgot the feature.
        bare = [child.name for child in walk_fields(metadata.schema) if child.field_id is None]
        if bare:
            problems.append(f"its column mapping has no id for {', '.join(bare)}")
    if metadata.format.lower() != "parquet":
        problems.append(f"its files are {metadata.format}")
    problems += [f"it has a column of type {name}" for name in unknown_types(metadata.schema)]
    return problems


def unknown_types(schema: Struct) -> list[str]:
    """Names of types in the schema that no reader here knows."""
    names = {kind.name for kind in walk_types(schema) if isinstance(kind, Primitive)}
    return sorted(name for name in names if not is_known_type(name))


def is_known_type(name: str) -> bool:
    """Whether a primitive type of this name can be read."""
    plain = name in _TYPES or name.startswith(("decimal", "char(", "varchar("))
    return plain or INTERVAL.match(name) is not None


_TYPES = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", "void", "variant",
    }
)  # fmt: skip
