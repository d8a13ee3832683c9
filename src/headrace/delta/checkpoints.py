"""Read a checkpoint of any kind: one file, parts, or version 2 with sidecars."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.delta.actions import flatten_adds, parse_file_lines
from headrace.delta.location import filesystem_path, resolve_file
from headrace.delta.parquet_files import open_parquet
from headrace.delta.segments import Checkpoint, log_path

_ADD_COLUMNS = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")


@dataclass
class CheckpointContent:
    """What a checkpoint holds of a version.

    Attributes:
        protocol: The last `protocol` action, or None.
        metadata: The last `metaData` action, or None.
        others: Small actions by kind (`domainMetadata`).
        adds: Tables with an `add` column, or JSON lines; read by `files`.
    """

    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: list[pa.StructArray] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def files(self, partition_names: Sequence[str]) -> list[pa.Table]:
        """The live files, as tables with the columns of `actions.files_schema`."""
        tables = [flatten_adds(add, partition_names) for add in self.tables]
        if self.lines:
            tables.append(parse_file_lines(self.lines, partition_names).drop_columns(["is_add"]))
        return tables


def read_checkpoint(
    filesystem: fs.FileSystem, uri: str, checkpoint: Checkpoint
) -> CheckpointContent:
    """Read a checkpoint; only the columns that a reader needs are decoded."""
    content = CheckpointContent()
    for name in checkpoint.names:
        path = f"{log_path(uri)}/{name}"
        if name.endswith(".json"):
            sidecars = _read_json(filesystem, path, content)
        else:
            sidecars = _read_parquet(filesystem, path, content)
        for sidecar in sidecars:
            _read_parquet(filesystem, _sidecar_path(uri, sidecar), content)
    return content


def _sidecar_path(uri: str, path: str) -> str:
    """Sidecars live in `_delta_log/_sidecars` and are mostly named without their folder."""
    return filesystem_path(resolve_file(f"{uri.rstrip('/')}/_delta_log/_sidecars", path))


def _read_json(filesystem: fs.FileSystem, path: str, content: CheckpointContent) -> list[str]:
    sidecars = []
    with filesystem.open_input_stream(path) as stream:
        lines = stream.read().splitlines()
    for line in lines:
        if not line.strip():
            continue
        action = json.loads(line)
        _keep_small(content, action)
        if action.get("sidecar"):
            sidecars.append(str(action["sidecar"]["path"]))
        if action.get("add"):
            content.lines.append(line)
    return sidecars


def _read_parquet(filesystem: fs.FileSystem, path: str, content: CheckpointContent) -> list[str]:
    with (
        filesystem.open_input_file(path) as source,
        open_parquet(source, pre_buffer=False) as file,
    ):
        top = set(file.schema_arrow.names)
        for name in ("protocol", "metaData", "domainMetadata"):
            if name in top:
                for value in _rows(file, name):
                    _keep_small(content, {name: value})
        if "add" in top:
            content.tables.append(_read_adds(file))
        return [value["path"] for value in _rows(file, "sidecar")] if "sidecar" in top else []


def _rows(file: pq.ParquetFile, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a top-level column that aren't null."""
    for group in range(file.num_row_groups):
        column = file.read_row_group(group, columns=[name])[name]
        yield from pc.drop_null(column).to_pylist(maps_as_pydicts="lossy")


def _read_adds(file: pq.ParquetFile) -> pa.StructArray:
    """The `add` column; statistics as structs only where a file has no JSON statistics."""
    table = file.read(columns=[f"add.{name}" for name in _ADD_COLUMNS])
    add = table["add"].combine_chunks()
    names = [child.name for child in file.schema_arrow.field("add").type]
    if "stats_parsed" in names and _lacks_stats(add):
        columns = [f"add.{name}" for name in (*_ADD_COLUMNS, "stats_parsed")]
        add = file.read(columns=columns)["add"].combine_chunks()
    if isinstance(add, pa.ChunkedArray):
        add = pa.concat_arrays(add.chunks) if add.num_chunks else pa.array([], add.type)
    return add


def _lacks_stats(add: pa.StructArray | pa.ChunkedArray) -> bool:
    if "stats" not in [child.name for child in add.type]:
        return True
    files = pc.is_valid(pc.struct_field(add, "path"))
    return bool(pc.any(pc.and_(files, pc.is_null(pc.struct_field(add, "stats")))).as_py())


def _keep_small(content: CheckpointContent, action: dict[str, Any]) -> None:
    protocol, metadata = action.get("protocol"), action.get("metaData")
    if protocol and protocol.get("minReaderVersion") is not None:
        content.protocol = protocol
    if metadata and metadata.get("schemaString") is not None:
        content.metadata = metadata
    domain = action.get("domainMetadata")
    if domain and domain.get("domain") is not None and not domain.get("removed"):
        content.domains[domain["domain"]] = domain
