"""Plan a read of the change data feed: what happened to rows between two versions.

Per commit, as Delta does it: files of `cdc` actions where there are any; else the rows of files
that were added or removed with `dataChange`, and where only a file's deletion vector changed, the
rows that it lost or got back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from headrace.delta.actions import DV_TYPE, files_schema, partition_column
from headrace.delta.data_files import ReadSpec
from headrace.delta.location import open_filesystem
from headrace.delta.protocol import Metadata
from headrace.delta.reading import plain_spec
from headrace.delta.schema import Field, Primitive, Struct
from headrace.delta.segments import LogListing, list_log, log_path
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.delta.statistics import physical_rows
from headrace.delta.times import commit_times, format_time
from headrace.exceptions import ChangesUnavailableError, LogIncompleteError, VersionNotFoundError

ENABLED = "delta.enableChangeDataFeed"
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = CHANGE_COLUMNS = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
_FIELDS = (
    Field(CHANGE_TYPE, Primitive("string")),
    Field(COMMIT_VERSION, Primitive("long")),
    Field(COMMIT_TIMESTAMP, Primitive("timestamp")),
)


@dataclass(frozen=True)
class Changes:
    """A planned read of changes: what its files have in common, and the files."""

    spec: ReadSpec
    files: pa.Table


def load_changes(snapshot: Snapshot, since: int) -> Changes:
    """Plan the changes of the versions after `since`, up to the snapshot's.

    Args:
        snapshot: The version up to which changes are read; its schema is used for all of them.
        since: The last version whose changes are known already; -1 for none.

    Raises:
        VersionNotFoundError: `since` is newer than the snapshot.
        ChangesUnavailableError: The feed was off in a version of the range, or commits are gone.
    """
    spec = plain_spec(snapshot)
    spec = replace(
        spec,
        schema=Struct((*snapshot.schema.fields, *_FIELDS)),
        columns=(*spec.columns, *CHANGE_COLUMNS),
        partition_columns=(*spec.partition_columns, *CHANGE_COLUMNS),
        either=(CHANGE_TYPE,),
    )
    if since > snapshot.version:
        raise VersionNotFoundError(
            uri=snapshot.uri,
            wanted=f"changes since version {since}",
            found=f"The pinned version is {snapshot.version}.",
        )
    filesystem = open_filesystem(snapshot.uri, spec.storage)
    rows: list[dict[str, Any]] = []
    if since < snapshot.version:
        rows = list(_Range(filesystem, snapshot, since + 1, spec).rows())
    return Changes(spec, _table(rows, snapshot))


class _Range:
    """The commits of a range of versions."""

    def __init__(
        self, filesystem: fs.FileSystem, snapshot: Snapshot, first: int, spec: ReadSpec
    ) -> None:
        self._filesystem, self._snapshot, self._first, self._spec = (
            filesystem,
            snapshot,
            first,
            spec,
        )
        self._partitions = snapshot.metadata.physical_partition_columns

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the plan, commit by commit."""
        listing = list_log(self._filesystem, self._snapshot.uri)
        self._check_present(listing)
        self._check_enabled_before()
        times = commit_times(self._filesystem, self._snapshot.uri, listing, first=self._first)
        for version in range(self._first, self._snapshot.version + 1):
            actions = self._read(listing.commits[version])
            for action in actions:
                if metadata := action.get("metaData"):
                    self._check_enabled(Metadata.parse(metadata), version)
            when = {
                partition_column(COMMIT_VERSION): str(version),
                partition_column(COMMIT_TIMESTAMP): format_time(times[version]),
            }
            for row in commit_changes(actions):
                yield {**self._with_values(row, version), **when}

    def _check_present(self, listing: LogListing) -> None:
        for version in range(self._first, self._snapshot.version + 1):
            if version not in listing.commits:
                raise self._error(
                    f"The log has no commit {version} any more",
                    "read the whole table once, then its changes from there on",
                )

    def _check_enabled_before(self) -> None:
        """The range's first commit may not say whether the feed is on; the version before does."""
        uri, storage = self._snapshot.uri, self._spec.storage
        try:
            before = load_snapshot(uri, version=max(self._first - 1, 0), storage=storage)
        except (LogIncompleteError, VersionNotFoundError):
            before = load_snapshot(uri, version=self._first, storage=storage)
        if self._first > 0 or before.configuration.get(ENABLED, "false").lower() != "true":
            self._check_enabled(before.metadata, self._first)

    def _check_enabled(self, metadata: Metadata, version: int) -> None:
        if str(metadata.configuration.get(ENABLED, "false")).lower() != "true":
            raise self._error(
                f"The change data feed is off in version {version}",
                f"ALTER TABLE ... SET TBLPROPERTIES ({ENABLED} = true), then read from there on",
            )
        if metadata.physical_partition_columns != self._partitions:
            raise self._error(
                f"The table is partitioned otherwise since version {version}",
                "read the whole table once, then its changes from there on",
            )

    def _with_values(self, row: dict[str, Any], version: int) -> dict[str, Any]:
        values = row.pop("partitionValues")
        if values is None and self._partitions:
            raise self._error(
                f"Version {version} removes files without saying their partition values",
                "read the whole table once, then its changes from there on",
            )
        found = dict(_pairs(values))
        return {**row, **{partition_column(name): found.get(name) for name in self._partitions}}

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = f"{log_path(self._snapshot.uri)}/{name}"
        with self._filesystem.open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().split(b"\n") if line.strip()]

    def _error(self, problem: str, fix: str) -> ChangesUnavailableError:
        return ChangesUnavailableError(
            uri=self._snapshot.uri,
            first=self._first,
            last=self._snapshot.version,
            problem=problem,
            fix=fix,
        )


def commit_changes(actions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of a plan for one commit's actions, without its version and time."""
    written = [action["cdc"] for action in actions if action.get("cdc")]
    if written:
        for action in written:
            yield _row(action, None)
        return
    adds = _by_path(actions, "add")
    removes = _by_path(actions, "remove")
    for path, add in adds.items():
        if path not in removes:
            yield _row(add, "insert", dv=add.get("deletionVector"))
    for path, remove in removes.items():
        if path not in adds:
            yield _row(remove, "delete", dv=remove.get("deletionVector"))
            continue
        new, old = adds[path].get("deletionVector"), remove.get("deletionVector")
        if new:
            yield _row(adds[path], "delete", dv=old, only=new)
        if old:
            yield _row(adds[path], "insert", dv=new, only=old)


def _by_path(actions: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    found = (action[kind] for action in actions if action.get(kind))
    return {action["path"]: action for action in found if action.get("dataChange", True)}


def _row(
    action: Mapping[str, Any],
    change: str | None,
    *,
    dv: Mapping[str, Any] | None = None,
    only: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One file of the plan; with `change` None the file itself says what happened."""
    stats = action.get("stats")
    return {
        "path": action["path"],
        "size": int(action.get("size") or 0),
        "modification_time": 0,
        "stats": stats if isinstance(stats, str) else None,
        "dv": dict(dv) if dv else None,
        "only": dict(only) if only else None,
        "partitionValues": action.get("partitionValues"),
        partition_column(CHANGE_TYPE): change,
    }


def _pairs(values: Any) -> list[tuple[str, str | None]]:
    return list((values or {}).items())


def _table(rows: list[dict[str, Any]], snapshot: Snapshot) -> pa.Table:
    names = [*snapshot.metadata.physical_partition_columns, *CHANGE_COLUMNS]
    schema = files_schema(names).append(pa.field("only", DV_TYPE))
    table = pa.Table.from_pylist(rows, schema=schema)
    counts = pa.compute.if_else(pa.compute.is_null(table["only"]), physical_rows(table), None)
    return table.append_column("rows", counts)
