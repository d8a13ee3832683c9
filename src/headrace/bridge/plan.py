"""Plan a read: which files, in which tasks. Pure: from a snapshot's columns to tasks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.snapshot import Snapshot
from headrace.delta.statistics import physical_rows

_MIB = 1 << 20
# What opening a file costs, as bytes that could be read in that time.
_OPEN_COST = 1 * _MIB
# Tasks grow with a table that would have more than this many.
_MOST_TASKS = 20_000
# A file this much larger than a task is cut; smaller overhang isn't worth a second footer.
_CUT_FROM = 1.5


@dataclass(frozen=True)
class ReadTask:
    """Files, or byte ranges of them, that one Ray task reads.

    Attributes:
        files: Columns of `Snapshot.files` and `rows` (rows in the file, deleted ones included),
            `start` and `end` (bytes; null for "from the beginning" and "to the end").
    """

    files: pa.Table

    @property
    def size_bytes(self) -> int:
        """Bytes of compressed Parquet to read."""
        return int(pc.sum(_range_sizes(self.files)).as_py() or 0)

    @property
    def size_mib(self) -> int:
        """The same in MiB."""
        return round(self.size_bytes / _MIB)

    @property
    def row_count(self) -> int | None:
        """Rows after deletion vectors, or None when unknown."""
        whole = pc.and_(pc.is_null(self.files["start"]), pc.is_null(self.files["end"]))
        if self.files["rows"].null_count or not pc.all(whole).as_py():
            return 0 if self.files.num_rows == 0 else None
        deleted = pc.coalesce(
            pc.struct_field(self.files["dv"], "cardinality"), pa.scalar(0, pa.int64())
        )
        return int(pc.sum(pc.subtract(self.files["rows"], deleted)).as_py() or 0)


def plan_reads(
    files: Snapshot | pa.Table, *, target_mib: float = 128, min_tasks: int = 1
) -> list[ReadTask]:
    """Split a pinned table version into read tasks of similar size.

    Large files are cut into byte ranges, of which each reads the row groups whose middle it
    holds, and small ones are joined, so that one skewed partition does not leave a worker alone
    at the end. Nothing is read: the sizes come from the Delta log.

    Args:
        files: The version to read, or the rows of `Snapshot.files` that are wanted.
        target_mib: Wanted size of one task, in MiB of compressed Parquet.
        min_tasks: Tasks wanted at least, as far as tasks of 1 MiB or more give that many.

    Returns:
        Tasks in file order. An empty table gives an empty list.
    """
    table = files.planned_files if isinstance(files, Snapshot) else files
    if table.num_rows == 0:
        return []
    if "rows" not in table.column_names:
        table = table.append_column("rows", physical_rows(table))
    sizes = np.maximum(pc.fill_null(table["size"], 0).to_numpy(), 0).astype(np.int64)
    target = max(target_mib * _MIB, 1)
    target = max(target, float(sizes.sum()) / _MOST_TASKS)
    if min_tasks > 1:
        target = min(target, max(float(sizes.sum()) / min_tasks, _OPEN_COST))
    pieces, weights = _cut(table, sizes, target)
    return [ReadTask(group) for group in _join(pieces, weights, target)]


def _cut(table: pa.Table, sizes: np.ndarray, target: float) -> tuple[pa.Table, np.ndarray]:
    """Every file as one row, or as several with the bytes at which they are cut."""
    counts = np.where(sizes > target * _CUT_FROM, np.ceil(sizes / target), 1).astype(np.int64)
    numbers = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    count, size = counts[numbers], sizes[numbers]
    starts, ends = size * index // count, size * (index + 1) // count
    pieces = table.take(pa.array(numbers)) if len(numbers) != len(counts) else table
    pieces = pieces.append_column("start", pa.array(starts, mask=index == 0))
    pieces = pieces.append_column("end", pa.array(ends, mask=index == count - 1))
    return pieces, np.maximum(ends - starts, 1)


def _join(pieces: pa.Table, weights: np.ndarray, target: float) -> list[pa.Table]:
    """Neighbours together until they weigh as much as a task should."""
    cost = weights + _OPEN_COST
    middles = np.cumsum(cost) - cost / 2
    count = max(1, round(float(cost.sum()) / (target + _OPEN_COST)))
    bins = np.minimum((middles / cost.sum() * count).astype(np.int64), count - 1)
    borders = np.flatnonzero(np.diff(bins)) + 1
    edges = [0, *borders.tolist(), len(bins)]
    return [pieces.slice(first, last - first) for first, last in itertools.pairwise(edges)]


def _range_sizes(files: pa.Table) -> pa.ChunkedArray:
    size = pc.fill_null(files["size"], 0)
    return pc.subtract(pc.coalesce(files["end"], size), pc.fill_null(files["start"], 0))
