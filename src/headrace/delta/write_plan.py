"""What a write is asked to do, and how it will be done, before a row is looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from headrace.context import TaskContext
from headrace.delta.binding import bind
from headrace.delta.guards import Guard, check_writable
from headrace.delta.log import TableFiles, commit_versions
from headrace.delta.predicates import Predicate
from headrace.delta.protocol import Metadata
from headrace.delta.schema import Struct
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.delta.sql_filters import parse_filter
from headrace.delta.transaction import WriteKey, lineage
from headrace.delta.write_files import FilePlan
from headrace.delta.write_partitions import partition_names
from headrace.delta.write_rows import RowPlan
from headrace.exceptions import WriteRequestError

Mode = Literal["append", "overwrite", "overwrite_partitions", "merge"]
SchemaMode = Literal["merge", "overwrite"]


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """The arguments of a write.

    Attributes:
        table: Name of the table, for error texts.
        files: Where it is.
        key: Identity of the write.
        mode: What happens to the rows that are there.
        partition_by: Partition columns of a new table, or None for whatever the table has.
        replace_where: SQL predicate of the rows to replace.
        merge_on: Key columns of a merge.
        schema_mode: Whether the data may add columns, or replace the schema.
        context: The task that writes.
    """

    table: str
    files: TableFiles
    key: WriteKey
    mode: Mode
    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    merge_on: tuple[str, ...] = ()
    schema_mode: SchemaMode | None = None
    context: TaskContext

    @property
    def operation(self) -> str:
        """Delta's name of the operation."""
        return "MERGE" if self.mode == "merge" else "WRITE"

    def parameters(self, partition_columns: Sequence[str]) -> dict[str, str]:
        """The `operationParameters` of the commit, with who wrote and from what."""
        about = lineage(self.context, self.key)["headrace"]
        found = {
            "mode": "Append" if self.mode == "append" else "Overwrite",
            "partitionBy": json.dumps(list(partition_columns)),
            "run": about["run"],
            "task": about["task"],
            "attempt": about["attempt"],
            "inputs": [f"{item['uri']}@v{item['version']}" for item in about["inputs"]],
        }
        if self.mode == "merge":
            del found["mode"]
            found["mergeOn"] = list(self.merge_on)
        if self.mode == "overwrite_partitions":
            found["isDynamicPartitionOverwrite"] = True
        if self.replace_where is not None:
            found["predicate"] = self.replace_where
        return {k: v if isinstance(v, str) else json.dumps(v) for k, v in found.items()}


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """A write that has passed the gate.

    Attributes:
        request: What was asked for.
        snapshot: The version it was planned on, or None when the table does not exist.
        rows: What the workers have to know.
    """

    request: WriteRequest
    snapshot: Snapshot | None
    rows: RowPlan

    @property
    def replaces_schema(self) -> bool:
        """Whether the table takes the data's schema."""
        return self.snapshot is None or self.request.schema_mode == "overwrite"

    @property
    def folder(self) -> str:
        """The folder of this write's files."""
        return self.rows.files.folder

    def with_schema(self, schema: Struct) -> WritePlan:
        """The plan once the columns of the first rows are known.

        Raises:
            WriteRequestError: The partition columns don't fit.
        """
        if not self.rows.grows:
            return self
        full = self.rows.grown(self.rows.schema, schema)
        if not full.fields:
            return self
        names = partition_names(self.request.table, full, self.rows.partition_columns)
        return replace(self, rows=replace(self.rows, schema=full, partition_columns=names))


def current_snapshot(files: TableFiles) -> Snapshot | None:
    """The newest version, or None when there is no table yet."""
    if not commit_versions(files) and not files.names("_delta_log"):
        return None
    return load_snapshot(files.uri, storage=files.storage)


def plan_write(request: WriteRequest) -> WritePlan:
    """Check a write against the newest version of its table.

    Raises:
        WriteRequestError: The arguments contradict each other or the table.
        UnsupportedWriteError: The table has a feature that this writer does not honour.
    """
    _check_arguments(request)
    snapshot = current_snapshot(request.files)
    if snapshot is not None:
        check_writable(request.table, snapshot.protocol, snapshot.metadata, request.mode)
        _check_against(request, snapshot.metadata)
    return WritePlan(request=request, snapshot=snapshot, rows=_row_plan(request, snapshot))


def _row_plan(request: WriteRequest, snapshot: Snapshot | None) -> RowPlan:
    key = request.key
    # Workers start with the credentials that the log has just been read with.
    known = replace(request.files, storage=request.files.storage.fresh())
    files = FilePlan(files=known, folder=key.file_prefix, attempt=key.write_id[:12])
    fresh = snapshot is None or request.schema_mode == "overwrite"
    partition_columns = request.partition_by or ()
    if snapshot is not None and request.partition_by is None:
        partition_columns = snapshot.partition_columns
    metadata = None if snapshot is None else snapshot.metadata
    return RowPlan(
        table=request.table,
        files=files,
        schema=Struct(()) if fresh or metadata is None else metadata.schema,
        grows=fresh or request.schema_mode == "merge",
        partition_columns=tuple(partition_columns),
        configuration={} if snapshot is None else _statistics_properties(snapshot),
        guard=Guard(request.table, ()) if metadata is None else Guard.of(request.table, metadata),
        replace_where=_bound(request, metadata),
        merge_on=request.merge_on,
        mapping_seed=key.write_id if metadata and metadata.mapping_mode != "none" else None,
    )


def _statistics_properties(snapshot: Snapshot) -> dict[str, str]:
    """The table's properties; a clustered table wants statistics of its clustering columns."""
    properties = dict(snapshot.configuration)
    if "delta.clustering" in snapshot.domains:
        properties["delta.dataSkippingNumIndexedCols"] = "-1"
    return properties


def _bound(request: WriteRequest, metadata: Metadata | None) -> tuple[Predicate, str] | None:
    if request.replace_where is None or metadata is None:
        return None
    text = request.replace_where
    return bind(parse_filter(text), metadata.schema, table=request.table, text=text), text


def _check_arguments(request: WriteRequest) -> None:
    mode, schema_mode = request.mode, request.schema_mode
    if mode not in get_args(Mode):
        _refuse(request, f"mode={mode!r} does not exist", f"use one of {', '.join(get_args(Mode))}")
    if schema_mode not in (None, *get_args(SchemaMode)):
        _refuse(
            request, f"schema_mode={schema_mode!r} does not exist", 'use "merge" or "overwrite"'
        )
    if (mode == "merge") != bool(request.merge_on):
        _refuse(request, 'mode="merge" and merge_on belong together', 'merge_on=["id"]')
    if request.replace_where is not None and mode != "overwrite":
        _refuse(request, "replace_where goes with an overwrite only", 'use mode="overwrite"')
    if schema_mode == "overwrite" and (mode != "overwrite" or request.replace_where is not None):
        _refuse(
            request,
            "only an overwrite of the whole table can replace its schema",
            'use schema_mode="merge", or mode="overwrite" without replace_where',
        )
    if schema_mode is not None and mode == "merge":
        _refuse(request, "a merge does not change the schema", "add the column with Spark first")


def _check_against(request: WriteRequest, metadata: Metadata) -> None:
    wanted = request.partition_by
    if wanted is not None and request.schema_mode != "overwrite":
        have = [name.lower() for name in metadata.partition_columns]
        if [name.lower() for name in wanted] != have:
            _refuse(
                request,
                f"partition_by={list(wanted)} is not how the table is partitioned",
                'leave it out, or use mode="overwrite", schema_mode="overwrite"',
                f"The table's partition columns: {list(metadata.partition_columns)}.",
            )
    mode = metadata.mapping_mode
    if request.schema_mode == "overwrite" and mode != "none":
        _refuse(
            request,
            "the schema of a table with column mapping is replaced by Spark only",
            "overwrite without schema_mode, or let Spark replace the table first",
        )
    if request.schema_mode == "merge" and mode == "id":
        _refuse(
            request,
            "columns are added by Spark only to a table that maps columns by id",
            "ALTER TABLE ... ADD COLUMN, then write without schema_mode",
        )
    if request.schema_mode == "overwrite" and Guard.of(request.table, metadata).rules:
        _refuse(
            request,
            "its schema can't be replaced while it has constraints or generated columns",
            "drop them first, or overwrite without schema_mode",
        )
    missing = [name for name in request.merge_on if metadata.schema.find(name) is None]
    if missing:
        _refuse(
            request,
            f"merge_on names {', '.join(missing)}, which the table lacks",
            "use key columns of the table",
            f"The table's columns: {', '.join(metadata.schema.names)}.",
        )


def _refuse(request: WriteRequest, problem: str, fix: str, found: str = "") -> None:
    raise WriteRequestError(table=request.table, problem=problem, found=found, fix=fix)
