"""Delta tables for tasks that run in one process: read into Arrow, write from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headrace.context import current_context
from headrace.delta.arrow_write import write_arrow
from headrace.delta.binding import bind
from headrace.delta.data_files import ReadSpec, read_files
from headrace.delta.pinning import pin
from headrace.delta.pruning import files_that_match
from headrace.delta.reading import plain_spec, resolve_columns
from headrace.delta.snapshot import Snapshot
from headrace.delta.sql_filters import parse_filter
from headrace.delta.statistics import physical_rows
from headrace.tables import TableRef

__all__ = ["read_arrow", "read_snapshot", "write_arrow"]

_THREADS = 4


def read_arrow(
    table: TableRef | str | Path,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the word of the other readers
) -> pa.Table:
    """A version of a Delta table as one Arrow table, for what fits into memory.

    Args:
        table: A `TableRef` (its version is read), a name in the lake, a path or an address.
        columns: Columns to read, in this order; None for all.
        filter: Rows to read, in SQL.

    Raises:
        DataError: The table can't be read right; the text says why.
        FilterError: The filter does not fit the table.

    Example:
        >>> read_arrow("flights", columns=["delay"], filter="delay > 30")  # doctest: +SKIP
    """
    snapshot, ref = pin(table)
    spec = plain_spec(snapshot)
    files = snapshot.files
    if filter is not None:
        bound = bind(parse_filter(filter), snapshot.schema, table=snapshot.uri, text=filter)
        files = files.filter(pa.array(files_that_match(files, bound, snapshot.metadata)))
        spec = replace(spec, filter=bound)
    if columns is not None:
        spec = replace(spec, columns=resolve_columns(spec, columns))
    current_context().record_read(ref)
    return pa.concat_tables(_read_all(spec, files))


def read_snapshot(snapshot: Snapshot) -> pa.Table:
    """All rows of a snapshot that is loaded already."""
    return pa.concat_tables(_read_all(plain_spec(snapshot), snapshot.files))


def _read_all(spec: ReadSpec, files: pa.Table) -> Iterator[pa.Table]:
    """The files' tables in order, some files at a time."""
    planned = files.append_column("rows", physical_rows(files))
    pieces = [planned.slice(at, 1) for at in range(planned.num_rows)] or [planned]
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        for tables in pool.map(lambda piece: list(read_files(spec, piece)), pieces):
            yield from tables
