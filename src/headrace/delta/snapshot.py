"""The pinned version of a table, rebuilt from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.delta.access import naming_store_errors, with_good_credentials
from headrace.delta.actions import partition_column
from headrace.delta.location import normal_uri, open_filesystem
from headrace.delta.protocol import Metadata, Protocol, check_readable
from headrace.delta.replay import replay_any
from headrace.delta.schema import Field, Struct, schema_hash
from headrace.delta.segments import list_log, plan_segments
from headrace.delta.statistics import count_rows, physical_rows
from headrace.delta.times import version_at
from headrace.profiles.storage import Storage
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Snapshot", "load_snapshot", "schema_hash"]


@dataclass(frozen=True)
class Snapshot:
    """One version of a table, as a value.

    Attributes:
        uri: Absolute path or `s3://` address of the table's root.
        version: Delta version.
        protocol: Versions and features.
        metadata: Schema, partition columns and configuration as the log has them.
        files: The live files, one row each: `path` (percent-encoded, as in the log), `size`,
            `modification_time`, `stats` (JSON), `dv` (deletion vector) and a string column
            `partition:NAME` for each partition column's physical name.
        domains: `domainMetadata` actions by domain.
    """

    uri: str
    version: int
    protocol: Protocol
    metadata: Metadata
    files: pa.Table = field(repr=False)
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def schema(self) -> Struct:
        """The table's schema as a tree."""
        return self.metadata.schema

    @property
    def schema_string(self) -> str:
        """The table's schema as the log has it."""
        return self.metadata.schema_string

    @property
    def configuration(self) -> Mapping[str, str]:
        """Table properties."""
        return self.metadata.configuration

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns, in order."""
        return self.metadata.partition_columns

    @property
    def mapping_mode(self) -> str:
        """How columns are found in files: `none` (by name), `name` or `id`."""
        return self.metadata.mapping_mode

    @property
    def file_count(self) -> int:
        """Live data files."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of all live data files."""
        return sum(value or 0 for value in self.files["size"].to_pylist())

    @cached_property
    def planned_files(self) -> pa.Table:
        """The files with a column `rows`: rows in each, deleted ones included, null if unknown."""
        return self.files.append_column("rows", physical_rows(self.files))

    @cached_property
    def row_count(self) -> int | None:
        """Rows after deletion vectors, or None when a file has no statistics."""
        return count_rows(self.planned_files)

    def partition_values(self, column: str) -> pa.ChunkedArray:
        """Each file's value of a partition column, as the log has it."""
        found = self.schema.find(column) or Field(column, self.schema)
        return self.files[partition_column(found.physical_name)]

    def ref(self, name: str | None = None) -> TableRef:
        """The small value that names this version.

        Args:
            name: The table's short name in the lake.
        """
        return TableRef(
            uri=self.uri,
            version=self.version,
            schema_hash=schema_hash(self.schema_string),
            row_count=self.row_count,
            file_count=self.file_count,
            name=name,
        )


def load_snapshot(
    uri: str,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    storage: Storage | None = None,
) -> Snapshot:
    """Rebuild a version of a table from its log.

    One listing and the log files of that version are read; no data file is touched. Time and
    memory per file are flat: files stay in Arrow columns from the log to the plan.

    Args:
        uri: Absolute path or address of the table's root.
        version: The version, or None for the newest.
        timestamp: The version that was current at this time; a text without a zone is UTC.
        storage: Credentials and endpoint.

    Raises:
        TableNotFoundError: There is no Delta log there.
        VersionNotFoundError: The table never had that version, or none at that time.
        LogIncompleteError: A log file that the version needs is missing.
        LogCorruptError: A log file can't be read.
        UnsupportedTableError: The table would come out wrong; the text names why.
        StorageAccessError: A store refuses the credentials, or does not answer.
    """
    root = normal_uri(uri)
    with naming_store_errors(root):
        return with_good_credentials(
            storage or Storage(), lambda known: _load(root, version, timestamp, known)
        )


def _load(
    root: str, version: int | None, timestamp: datetime | str | None, storage: Storage
) -> Snapshot:
    filesystem = open_filesystem(root, storage)
    listing = list_log(filesystem, root)
    if timestamp is not None:
        version = version_at(filesystem, root, listing, timestamp)
    segments = plan_segments(listing, root, version)
    found = replay_any(filesystem, root, segments)
    check_readable(root, found.protocol, found.metadata)
    return Snapshot(
        uri=root,
        version=segments[0].version,
        protocol=found.protocol,
        metadata=found.metadata,
        files=_with_known_vectors(found.files, found.protocol),
        domains=found.domains,
    )


def _with_known_vectors(files: pa.Table, protocol: Protocol) -> pa.Table:
    """The files, without deletion vectors where the protocol knows of none: Spark skips them."""
    place = files.schema.get_field_index("dv")
    if "deletionVectors" in protocol.reader_features or files["dv"].null_count == files.num_rows:
        return files
    import pyarrow as pa

    field = files.schema.field(place)
    return files.set_column(place, field, pa.nulls(files.num_rows, field.type))
