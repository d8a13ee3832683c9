"""Examine a table: what it needs, how it would be read, and what makes reading it slow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from headrace.context import current_context
from headrace.delta.location import normal_uri, open_filesystem
from headrace.delta.protocol import reader_problems
from headrace.delta.replay import Replayed, replay_any
from headrace.delta.segments import LogListing, list_log, plan_segments
from headrace.delta.statistics import live_rows, physical_rows
from headrace.profiles.storage import Storage

_MIB = 1 << 20
_SMALL_FILE = 16 * _MIB
_LARGE_FILE = 1024 * _MIB
_MANY_SMALL = 20
_SKEW = 10
_LONG_LOG = 50
_MUCH_DELETED = 0.3


@dataclass(frozen=True)
class TableReport:
    """What an examination found.

    Attributes:
        uri: The table.
        version: The version examined.
        reader: The reader that would be used, in words.
        reader_features: Features that a reader has to know.
        writer_features: Features that only writers have to know.
        refusals: Why a read would be refused; empty when it would not.
        rows: Rows after deletion vectors, or None when a file does not tell.
        files: Data files.
        size_bytes: Their bytes.
        deleted_rows: Rows that deletion vectors hide.
        without_statistics: Files whose row count is unknown.
        advice: What would make reads faster, each with a command to paste.
    """

    uri: str
    version: int
    reader: str
    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    refusals: tuple[str, ...]
    rows: int | None
    files: int
    size_bytes: int
    deleted_rows: int
    without_statistics: int
    advice: tuple[str, ...]

    @property
    def is_readable(self) -> bool:
        """Whether the table can be read."""
        return not self.refusals


def check_table(
    uri: str, *, version: int | None = None, storage: Storage | None = None
) -> TableReport:
    """Examine a table from its log alone; no data file is opened.

    Args:
        uri: Absolute path or address of the table's root.
        version: The version; None for the newest.
        storage: Credentials; those of the current context by default.

    Raises:
        TableNotFoundError: There is no Delta log there.
        LogIncompleteError: A log file that the version needs is missing.
    """
    root = normal_uri(uri)
    filesystem = open_filesystem(root, storage or current_context().storage)
    listing = list_log(filesystem, root)
    segments = plan_segments(listing, root, version)
    found = replay_any(filesystem, root, segments)
    sizes = pc.fill_null(found.files["size"], 0).to_numpy()
    rows = live_rows(found.files)
    deleted = pc.sum(pc.struct_field(found.files["dv"], "cardinality")).as_py() or 0
    protocol = found.protocol
    return TableReport(
        uri=root,
        version=segments[0].version,
        reader="headrace's own: Parquet files by pyarrow, one Ray task for about 128 MiB of them",
        reader_features=tuple(sorted(protocol.reader_features)),
        writer_features=tuple(sorted(protocol.writer_features - protocol.reader_features)),
        refusals=tuple(reader_problems(protocol, found.metadata)),
        rows=None if rows.null_count else int(pc.sum(rows).as_py() or 0),
        files=found.files.num_rows,
        size_bytes=int(sizes.sum()),
        deleted_rows=int(deleted),
        without_statistics=int(rows.null_count),
        advice=tuple(advise(found, listing, segments[0].version)),
    )


def advise(found: Replayed, listing: LogListing, version: int) -> list[str]:
    """What would make reads of this version faster."""
    sizes = pc.fill_null(found.files["size"], 0).to_numpy()
    return [*_size_advice(sizes), *_row_advice(found), *_log_advice(listing, version)]


def _size_advice(sizes: np.ndarray) -> list[str]:
    if len(sizes) == 0:
        return []
    advice = []
    small = int((sizes < _SMALL_FILE).sum())
    if small > _MANY_SMALL and small > len(sizes) / 2:
        advice.append(
            f"{small} of {len(sizes)} files are smaller than {_SMALL_FILE // _MIB} MiB, and each "
            "costs a footer: OPTIMIZE"
        )
    large = int((sizes > _LARGE_FILE).sum())
    if large:
        advice.append(
            f"{large} files are larger than {_LARGE_FILE // _MIB} MiB and can only be cut at row "
            "groups: SET TBLPROPERTIES ('delta.targetFileSize' = '256mb'), then OPTIMIZE"
        )
    median = float(np.median(sizes))
    if len(sizes) >= _SKEW and median and sizes.max() > _SKEW * median > _SMALL_FILE:
        advice.append(
            f"the largest file ({sizes.max() // _MIB} MiB) is {sizes.max() / median:.0f} times the "
            "median: one worker may wait for it alone; repartition before the write"
        )
    return advice


def _row_advice(found: Replayed) -> list[str]:
    advice = []
    physical = physical_rows(found.files)
    unknown = physical.null_count
    if unknown:
        advice.append(
            f"{unknown} files have no statistics: no filter can leave them out, and a count reads "
            "them: ANALYZE TABLE ... COMPUTE DELTA STATISTICS, or rewrite them"
        )
    deleted = pc.sum(pc.struct_field(found.files["dv"], "cardinality")).as_py() or 0
    total = pc.sum(physical).as_py() or 0
    if total and deleted / total > _MUCH_DELETED:
        advice.append(
            f"{deleted / total:.0%} of the rows are deleted and still read: "
            "REORG TABLE ... APPLY (PURGE)"
        )
    return advice


def _log_advice(listing: LogListing, version: int) -> list[str]:
    starts = [item.version for item in listing.checkpoints if item.version <= version]
    behind = version - max(starts, default=-1)
    if behind <= _LONG_LOG:
        return []
    advice = (
        f"{behind} commits lie after the last checkpoint, and each is one request: "
        "SET TBLPROPERTIES ('delta.checkpointInterval' = '10')"
    )
    return [advice]
