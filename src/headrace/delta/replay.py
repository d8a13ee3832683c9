"""Replay a segment of the log: the live files, the protocol and the metadata of one version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from headrace.delta.actions import file_keys, files_schema, parse_file_lines
from headrace.delta.checkpoints import CheckpointContent, read_checkpoint
from headrace.delta.parquet_files import is_damage
from headrace.delta.protocol import Metadata, Protocol
from headrace.delta.segments import Checkpoint, Segment, log_path
from headrace.exceptions import LogCorruptError, LogIncompleteError

_FILE_LINES = (b'{"add":{', b'{"remove":{')
_SKIPPED_LINES = (b'{"commitInfo":', b'{"cdc":', b'{"txn":')
_NEEDED = (b'"add":', b'"remove":', b'"metaData":', b'"protocol":')
_KINDS = ("add", "remove", "metaData", "protocol", "domainMetadata")


@dataclass(frozen=True)
class Replayed:
    """The outcome: everything a version is."""

    protocol: Protocol
    metadata: Metadata
    files: pa.Table
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class CommitLines:
    """The actions of some commits, oldest first, file actions still as one text per commit."""

    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)

    def take(self, content: bytes) -> None:
        """Add the lines of one commit file."""
        found: list[bytes] = []
        for raw in content.split(b"\n"):
            line = raw.strip()
            if line.startswith(_FILE_LINES):
                found.append(line)
            elif line and not _is_skipped(line):
                self._take_other(json.loads(line), found)
        if found:
            self.files.append(b"\n".join(found))

    def _take_other(self, action: dict[str, Any], found: list[bytes]) -> None:
        """Take one line; of several actions in it the first of Spark's order counts."""
        kind = next((name for name in _KINDS if action.get(name)), None)
        if kind == "protocol":
            self.protocol = action[kind]
        elif kind == "metaData":
            self.metadata = action[kind]
        elif kind == "domainMetadata":
            self.domains[action[kind]["domain"]] = action[kind]
        elif kind is not None:
            found.append(json.dumps({kind: action[kind]}).encode())


def _is_skipped(line: bytes) -> bool:
    return line.startswith(_SKIPPED_LINES) and not any(name in line for name in _NEEDED)


def replay_any(filesystem: fs.FileSystem, uri: str, segments: Sequence[Segment]) -> Replayed:
    """Replay the first segment that can be read; a damaged checkpoint is passed over."""
    for segment in segments[:-1]:
        try:
            return replay(filesystem, uri, segment)
        except (FileNotFoundError, LogCorruptError):
            continue
    try:
        return replay(filesystem, uri, segments[-1])
    except FileNotFoundError as error:
        version = segments[-1].version
        raise LogIncompleteError(uri=uri, version=version, missing=str(error)) from error


def replay(filesystem: fs.FileSystem, uri: str, segment: Segment) -> Replayed:
    """Replay one segment.

    Raises:
        LogCorruptError: A file can't be parsed, or there is no protocol or metadata.
    """
    commits = read_commits(filesystem, uri, segment)
    start = CheckpointContent()
    if segment.checkpoint is not None:
        start = _read_start(filesystem, uri, segment.checkpoint)
    protocol, metadata = commits.protocol or start.protocol, commits.metadata or start.metadata
    if protocol is None or metadata is None or not metadata.get("schemaString"):
        missing = "protocol action" if protocol is None else "metaData action with a schema"
        raise LogCorruptError(
            uri=uri, file=f"version {segment.version}", problem=f"it has no {missing}"
        )
    parsed = Metadata.parse(metadata)
    domains = {**start.domains, **commits.domains}
    return Replayed(
        protocol=Protocol.parse(protocol),
        metadata=parsed,
        files=_files(uri, segment, commits, start, parsed),
        domains={name: value for name, value in domains.items() if not value.get("removed")},
    )


def _read_start(filesystem: fs.FileSystem, uri: str, checkpoint: Checkpoint) -> CheckpointContent:
    try:
        return read_checkpoint(filesystem, uri, checkpoint)
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if not is_damage(error):
            raise
        name = ", ".join(checkpoint.names)
        raise LogCorruptError(uri=uri, file=name, problem=str(error)) from error


def _files(
    uri: str,
    segment: Segment,
    commits: CommitLines,
    start: CheckpointContent,
    metadata: Metadata,
) -> pa.Table:
    try:
        return _live_files(commits.files, start, metadata)
    except (pa.ArrowException, ValueError) as error:
        name = f"an add or remove action up to version {segment.version}"
        raise LogCorruptError(uri=uri, file=name, problem=str(error)) from error


def read_commits(filesystem: fs.FileSystem, uri: str, segment: Segment) -> CommitLines:
    """Read the segment's commit files, several at a time, and sort their lines by action."""
    found = CommitLines()
    folder = log_path(uri)

    def read(name: str) -> bytes:
        with filesystem.open_input_stream(f"{folder}/{name}") as stream:
            return bytes(stream.read())

    with ThreadPoolExecutor(max_workers=16) as pool:
        for name, content in zip(segment.commits, pool.map(read, segment.commits), strict=True):
            try:
                found.take(content)
            except (ValueError, KeyError, AttributeError) as error:
                raise LogCorruptError(uri=uri, file=name, problem=str(error)) from error
    return found


def _live_files(texts: list[bytes], start: CheckpointContent, metadata: Metadata) -> pa.Table:
    """Checkpoint files that no later commit touches, then what the commits left."""
    names = metadata.physical_partition_columns
    changed = parse_file_lines(texts, names)
    texts.clear()
    keys = file_keys(changed)
    tables = start.files(names)
    if len(keys):
        tables = [
            table.filter(pc.invert(pc.is_in(file_keys(table), value_set=keys))) for table in tables
        ]
    last = changed.take(_last_of_each(keys))
    tables.append(last.filter(last["is_add"]).drop_columns(["is_add"]))
    return _concat(tables, names)


def _last_of_each(keys: pa.ChunkedArray) -> pa.Array:
    """Row numbers of the last row with each key, in order."""
    if len(keys) == 0:
        return pa.array([], pa.int64())
    codes = keys.combine_chunks()
    codes = codes if isinstance(codes, pa.Array) else pa.concat_arrays(codes.chunks)
    encoded = codes.dictionary_encode()
    if len(encoded.dictionary) == len(codes):
        return pa.array(np.arange(len(codes)))
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    backwards = numbers[::-1]
    _, first = np.unique(backwards, return_index=True)
    return pa.array(np.sort(len(numbers) - 1 - first), pa.int64())


def _concat(tables: Iterable[pa.Table], partition_names: Sequence[str]) -> pa.Table:
    kept = [table for table in tables if table.num_rows]
    if not kept:
        return files_schema(partition_names).empty_table()
    return pa.concat_tables(kept, promote_options="default").combine_chunks()
