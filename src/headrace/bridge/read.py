"""`from_spark` and `from_delta`: a pinned table version as a `ray.data.Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.bridge.filters import parse_any
from headrace.bridge.source import Request, make_source
from headrace.context import current_context
from headrace.delta.binding import bind
from headrace.delta.pinning import pin
from headrace.delta.reading import plain_spec, resolve_columns
from headrace.delta.snapshot import Snapshot
from headrace.tables import TableRef

if TYPE_CHECKING:
    from ray.data import Dataset
    from ray.data.expressions import Expr


def from_spark(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: str | Expr | None = None,  # noqa: A002
) -> Dataset:
    """A Ray Dataset of what Spark has.

    A table is read from its files at a pinned version. So is a DataFrame that is nothing but
    the newest version of a Delta table; any other DataFrame is first written, once and by its own
    session, to a staging table. The Dataset stays readable after Spark has stopped.

    Args:
        source: A `TableRef`, the name, path or address of a Delta table, or a DataFrame, classic
            or Spark Connect.
        columns: Columns to read, in this order; None for all.
        filter: Rows to read: an expression of `ray.data.expressions`, or SQL.

    Returns:
        A lazy, streaming Dataset.

    Raises:
        DataError: The table can't be read right; the text says why.
        FilterError: The filter does not fit the table.

    Example:
        >>> from_spark("flights", columns=["delay"], filter="delay > 30")  # doctest: +SKIP
    """
    if isinstance(source, TableRef | str | Path):
        return from_delta(source, columns=columns, filter=filter)
    from headrace.bridge.dataframe import table_of

    ref, names = table_of(source)
    return from_delta(ref, columns=names if columns is None else columns, filter=filter)


def from_delta(
    table: TableRef | str | Path,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    changes_since: int | str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | Expr | None = None,  # noqa: A002 - the word that Ray Data and SQL use
) -> Dataset:
    """A Ray Dataset of one version of a Delta table, or of what changed since another.

    The version is resolved once, on the driver. Files are left out by partition values and
    statistics before anything is opened.

    Args:
        table: A `TableRef` (its version is read), a name in the lake, a path or an address.
        version: The version; None for the newest.
        timestamp: The version that was current at this time; a text without a zone is UTC.
        changes_since: Read the change data feed of the versions after this one, up to the pinned
            one, with `_change_type`, `_commit_version` and `_commit_timestamp`. `"last"` starts
            where the last successful run of this task ended.
        columns: Columns to read, in this order; None for all.
        filter: Rows to read: an expression of `ray.data.expressions`, or SQL. Null and NaN
            count as in Spark.

    Returns:
        A lazy, streaming Dataset with the table's schema: no view types, times in UTC, exact
        integers and decimals.

    Raises:
        DataError: The table can't be read right; the text says why.
        FilterError: The filter does not fit the table.
        ReadRequestError: Arguments contradict each other.

    Example:
        >>> from_delta("lake/flights", version=7)  # doctest: +SKIP
    """
    snapshot, ref = pin(table, version=version, timestamp=timestamp)
    if changes_since is not None:
        from headrace.bridge.changes import change_request

        request = change_request(snapshot, ref, changes_since)
    else:
        request = plain_request(snapshot)
    current_context().record_read(ref)
    return open_dataset(request, columns=columns, filter=filter)


def plain_request(snapshot: Snapshot) -> Request:
    """A request for the whole version."""
    return Request(plain_spec(snapshot), snapshot.planned_files, snapshot.metadata)


def open_dataset(
    request: Request,
    *,
    columns: Sequence[str] | None,
    filter: str | Expr | None,  # noqa: A002
) -> Dataset:
    """Apply a selection and a filter, and hand the request to Ray Data."""
    import ray.data

    request, later = apply_filter(request, filter)
    if columns is not None and later is None:
        request = request.select(list(resolve_columns(request.spec, columns)))
    # One block is asked for, so that Ray takes the plan's tasks as they are; see make_source.
    dataset = ray.data.read_datasource(make_source(request), override_num_blocks=1)
    if later is None:
        return dataset
    dataset = dataset.filter(expr=later)
    if columns is None:
        return dataset
    return dataset.select_columns(list(resolve_columns(request.spec, columns)))


def apply_filter(
    request: Request,
    filter: str | Expr | None,  # noqa: A002
) -> tuple[Request, Expr | None]:
    """The request with the filter in it, or with what Ray has to evaluate after the read."""
    if filter is None:
        return request, None
    predicate = parse_any(filter)
    if predicate is None:
        assert not isinstance(filter, str)  # noqa: S101 - SQL parses or raises
        return request, filter
    bound = bind(predicate, request.spec.schema, table=request.spec.uri, text=str(filter))
    return request.filtered(bound), None
