"""What a table asks of its writers: honoured here, or refused by name before a file is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.delta.protocol import Metadata, Protocol
from headrace.delta.rules import Rule, plan_rules
from headrace.delta.schema import Field, Primitive, walk_fields, walk_types
from headrace.exceptions import UnsupportedWriteError

if TYPE_CHECKING:
    import pyarrow as pa

_NEWEST_WRITER = 7
# The features that a writer version below 7 stands for.
_LEGACY_FEATURES = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
# Honoured, or without a duty for a writer that only adds and removes whole files.
_HONOURED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "geospatial",  # refused by type
        "identityColumns",  # refused by column
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # refused by type
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
_WRITABLE = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz",
    }
)  # fmt: skip


def writer_features(protocol: Protocol) -> set[str]:
    """The features that a writer of the table has to know."""
    if protocol.writer >= _NEWEST_WRITER:
        return set(protocol.writer_features) | set(protocol.reader_features)
    legacy = (names for version, names in _LEGACY_FEATURES.items() if version <= protocol.writer)
    return {name for names in legacy for name in names}


def check_writable(table: str, protocol: Protocol, metadata: Metadata, mode: str) -> None:
    """Refuse a table whose rules this writer can't keep.

    Args:
        table: Name of the table, for error texts.
        protocol: Its protocol.
        metadata: Its schema and properties.
        mode: `append`, `overwrite`, `overwrite_partitions` or `merge`.

    Raises:
        UnsupportedWriteError: The text names the feature.
    """

    def refuse(feature: str, found: str = "", fix: str = "write it with Spark") -> None:
        raise UnsupportedWriteError(table=table, feature=feature, found=found, fix=fix)

    if protocol.writer > _NEWEST_WRITER:
        refuse(f"writer version {protocol.writer}", f"The newest known is {_NEWEST_WRITER}.")
    features = writer_features(protocol)
    unknown = sorted(features - _HONOURED)
    if unknown:
        refuse(f"the feature {', '.join(unknown)}", f"All of its features: {sorted(features)}.")
    _check_properties(metadata.configuration, mode, refuse)
    for child in walk_fields(metadata.schema):
        _check_field(child, refuse)
    for kind in walk_types(metadata.schema):
        if isinstance(kind, Primitive) and not _is_writable(kind.name):
            refuse(f"a column of type {kind.name}")


def _is_writable(name: str) -> bool:
    return name in _WRITABLE or name.startswith("decimal")


_Refuse = Callable[..., None]


def _check_properties(configuration: Mapping[str, str], mode: str, refuse: _Refuse) -> None:
    def is_on(name: str) -> bool:
        return configuration.get(name, "false").lower() == "true"

    if is_on("delta.appendOnly") and mode != "append":
        refuse(
            "delta.appendOnly",
            f"Nothing may be removed from it, and mode={mode!r} removes rows.",
            'use mode="append"',
        )
    for name in sorted(configuration):
        if name.startswith("delta.enableIcebergCompat") and is_on(name):
            refuse(name)
        if name.startswith(("delta.coordinatedCommits.", "delta.universalFormat.")):
            refuse(name, f"{name} = {configuration[name]}")


def _check_field(child: Field, refuse: _Refuse) -> None:
    if any(name.startswith("delta.identity.") for name in child.metadata):
        refuse(f"the identity column {child.name!r}", "Spark keeps its counter in the log.")


@dataclass(frozen=True)
class Guard:
    """The rules for rows, ready to travel to the workers.

    Attributes:
        table: Name of the table, for error texts.
        rules: The rules.
    """

    table: str
    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, table: str, metadata: Metadata) -> Guard:
        """The rules of a table.

        Raises:
            UnsupportedWriteError: A rule uses SQL that is not known here.
        """
        return cls(table, plan_rules(table, metadata))

    def check(self, data: pa.Table) -> None:
        """Refuse rows that break a rule.

        Raises:
            ConstraintViolatedError: The text has the rule and the first offending row.
        """
        if data.num_rows:
            for rule in self.rules:
                rule.check(self.table, data)
