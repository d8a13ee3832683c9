"""Data files of one write: Parquet with statistics, below a folder that only this write uses.

The folder is named after the write's key, the files after the attempt. So an attempt that is run
again finds what a killed one has left, and never touches the files of another writer.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.delta.log import Action, TableFiles
from headrace.delta.schema import Field, Struct
from headrace.delta.write_partitions import (
    PartitionValues,
    encode_path,
    partition_folder,
    split_by_partition,
)
from headrace.delta.write_stats import FileStats, Leaf
from headrace.delta.write_types import stored_field

_OPEN_FILES = 64
_TARGET_BYTES = 256 << 20
_ROW_GROUP_ROWS = 1 << 20
_ROW_GROUP_BYTES = 32 << 20
_WAITING_BYTES = 128 << 20


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """What every worker of a write has to know to make its files.

    Attributes:
        files: The table.
        folder: Folder of this write, below the table's root.
        attempt: Start of this attempt's file names.
        target_bytes: Size at which a file is closed and the next one begun.
    """

    files: TableFiles
    folder: str
    attempt: str
    target_bytes: int = _TARGET_BYTES

    @property
    def scratch(self) -> str:
        """A name that only this attempt uses."""
        return f"{self.folder}/{self.attempt}.commit"

    def delete(self, added: Sequence[Action]) -> None:
        """Delete the files of `add` actions that will not be committed."""
        for action in added:
            self.files.delete(unquote(action["add"]["path"]))


@dataclass
class FileWriter:
    """Writes rows to data files; one is made per worker.

    Attributes:
        plan: Where to.
        schema: Columns of the rows, in order.
        partition_columns: Names of the partition columns.
        leaves: Columns that get statistics.
    """

    plan: FilePlan
    schema: Struct
    partition_columns: tuple[str, ...]
    leaves: list[Leaf]
    added: list[Action] = field(default_factory=list)
    _open: OrderedDict[tuple[Any, ...], _OpenFile] = field(default_factory=OrderedDict)

    def write(self, data: pa.Table) -> None:
        """Write rows that have the schema's columns and types."""
        columns = [self._field(name) for name in self.partition_columns]
        for values, part in split_by_partition(data, columns):
            if part.num_rows:
                self._file(values).write(part)
                self._close_some(values)
        if sum(file.waiting_bytes for file in self._open.values()) > _WAITING_BYTES:
            for file in self._open.values():
                file.flush()

    def close(self) -> list[Action]:
        """Close what is open; the `add` actions of all files, in the order of closing."""
        while self._open:
            self._close(next(iter(self._open)))
        return self.added

    def abandon(self) -> None:
        """Delete every file of this writer."""
        for file in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                file.sink.close()
            self.plan.files.delete(file.path)
        self._open.clear()
        self.plan.delete(self.added)

    def _field(self, name: str) -> Field:
        found = self.schema.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def _file(self, values: PartitionValues) -> _OpenFile:
        key = tuple(values.items())
        if key not in self._open:
            partitions = {name.lower() for name in self.partition_columns}
            fields = [f for f in self.schema.fields if f.name.lower() not in partitions]
            self._open[key] = _OpenFile.create(self.plan, values, fields, self.leaves)
        self._open.move_to_end(key)
        return self._open[key]

    def _close_some(self, values: PartitionValues) -> None:
        key = tuple(values.items())
        if self._open[key].written_bytes >= self.plan.target_bytes:
            self._close(key)
        if len(self._open) > _OPEN_FILES:
            self._close(next(iter(self._open)))

    def _close(self, key: tuple[Any, ...]) -> None:
        self.added.append(self._open.pop(key).close())


@dataclass
class _OpenFile:
    path: str
    values: PartitionValues
    schema: pa.Schema
    sink: pafs.NativeFile
    writer: pq.ParquetWriter
    stats: FileStats
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0

    @classmethod
    def create(
        cls, plan: FilePlan, values: PartitionValues, fields: list[Field], leaves: list[Leaf]
    ) -> _OpenFile:
        name = f"{plan.attempt}-{uuid.uuid4().hex}.snappy.parquet"
        path = "/".join(part for part in (plan.folder, partition_folder(values), name) if part)
        filesystem = plan.files.filesystem()
        target = plan.files.path(path)
        if isinstance(filesystem, pafs.LocalFileSystem):
            filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        schema = pa.schema([stored_field(child, physical=True) for child in fields])
        sink = filesystem.open_output_stream(target)
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="snappy",
            store_schema=False,
            write_statistics=_with_footer_bounds(schema),
        )
        return cls(path, values, schema, sink, writer, FileStats(leaves))

    @property
    def written_bytes(self) -> int:
        return int(self.sink.tell())

    def write(self, data: pa.Table) -> None:
        self.stats.add(data)
        self.waiting.append(relabel(data, self.schema))
        self.waiting_bytes += data.nbytes
        if self.waiting_bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits; small blocks are joined, or a file would be all footer."""
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=_ROW_GROUP_ROWS)
            self.waiting, self.waiting_bytes = [], 0

    def close(self) -> Action:
        self.flush()
        self.writer.close()
        size = self.written_bytes
        self.sink.close()
        return {
            "add": {
                "path": encode_path(self.path),
                "partitionValues": self.values,
                "size": size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": self.stats.to_json(),
            }
        }


@lru_cache(maxsize=64)
def _with_footer_bounds(schema: pa.Schema) -> list[str]:
    """The Parquet columns whose row groups get a minimum and a maximum: all but floats.

    Arrow leaves NaN out of them. Spark, to which NaN is above every number, would then skip row
    groups that hold rows it looks for; its own files have no bounds where there is a NaN.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    every = (columns.column(index) for index in range(len(columns)))
    return [found.path for found in every if found.physical_type not in ("FLOAT", "DOUBLE")]


def relabel(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same values under the names and field ids that a file has."""
    columns = [_relabel(data.column(index), child.type) for index, child in enumerate(schema)]
    return pa.table(columns, schema=schema)


def _relabel(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind, check_metadata=True):
        return column
    return pa.chunked_array([_relabel_array(chunk, kind) for chunk in column.chunks], type=kind)


def _relabel_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values with the field names of another type."""
    if pa.types.is_struct(kind):
        children = [
            _relabel_array(array.field(index), child.type) for index, child in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _relabel_array(array.values, kind.value_type)
        return pa.ListArray.from_buffers(
            kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values]
        )
    if pa.types.is_map(kind):
        keys = _relabel_array(array.keys, kind.key_type)
        items = _relabel_array(array.items, kind.item_type)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[kind.key_field, kind.item_field]
        )
        return pa.MapArray.from_buffers(
            kind, len(array), array.buffers()[:2], array.null_count, array.offset, [entries]
        )
    return array


def remove_files(
    files: TableFiles, folder: str, *, keep: frozenset[str] = frozenset(), attempt: str = ""
) -> list[str]:
    """Delete what lies in a write's folder, and the folder when nothing is left in it.

    Args:
        files: The table.
        folder: The write's folder, below the table's root.
        keep: Encoded paths that the log refers to.
        attempt: Only files of this attempt; of all attempts when empty.

    Returns:
        Paths of the deleted files, below the table's root.
    """
    filesystem = files.filesystem()
    selector = pafs.FileSelector(files.path(folder), recursive=True, allow_not_found=True)
    found = [i for i in filesystem.get_file_info(selector) if i.type == pafs.FileType.File]
    start = len(files.path(""))
    removed = []
    for info in found:
        relative = info.path[start:]
        if encode_path(relative) in keep or not info.base_name.startswith(attempt):
            continue
        files.delete(relative)
        removed.append(relative)
    if len(removed) == len(found):
        with contextlib.suppress(OSError):
            filesystem.delete_dir(files.path(folder))
    return removed
