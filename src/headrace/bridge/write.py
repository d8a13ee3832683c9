"""`to_delta`: a Ray Dataset into a Delta table, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.bridge.sink import make_sink
from headrace.context import current_context
from headrace.delta.finish import Write, write_once
from headrace.delta.log import TableFiles
from headrace.delta.target import name_list, resolve_target
from headrace.delta.transaction import resolve_key
from headrace.delta.write_plan import Mode, SchemaMode, WritePlan, WriteRequest
from headrace.engines.own_errors import own_error
from headrace.exceptions import HeadraceError
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset


def to_delta(
    ds: Dataset,
    table: TableRef | str | Path,
    *,
    mode: Mode = "append",
    key: tuple[str, ...] | None = None,
    partition_by: Sequence[str] | str | None = None,
    replace_where: str | None = None,
    merge_on: Sequence[str] | str | None = None,
    schema_mode: SchemaMode | None = None,
) -> TableRef:
    """Write a Ray Dataset to a Delta table in one commit, exactly once.

    Ray's workers convert and check their blocks and write Parquet files with statistics; the
    driver makes one commit. Until then nothing is visible, and after a failure nothing is left.
    The table's rules (CHECK, NOT NULL, generated columns, ...) are kept or, where that can't be
    done here, refused by name before a file is written. A value is stored exactly or refused.

    Inside a task the write carries the task's key as a Delta transaction: an attempt that is killed
    and run again leaves one copy. The commit names run, task, MLflow run and input versions, so
    `DESCRIBE HISTORY` shows where rows come from.

    Args:
        ds: The rows.
        table: A name in the lake, a path, an `s3://` address, or a reference (its table is meant).
        mode: `append`; `overwrite` (all rows, or those of `replace_where`);
            `overwrite_partitions` (only partitions that `ds` has rows for); `merge` on `merge_on`:
            a row whose key exists replaces it, another is inserted. A merge reads and rewrites
            the files that hold such keys, so it is for small changes.
        key: Identity of the write; the task's when left out.
        partition_by: Partition columns of a new table.
        replace_where: SQL predicate: only rows for which it holds are replaced, and only such rows
            may be written.
        merge_on: Key columns of a merge. A null key matches nothing.
        schema_mode: `merge` adds the columns that the table lacks, `overwrite` takes the schema of
            `ds`. Without it such columns are refused, and missing ones are null.

    Returns:
        The version that this write, or an earlier attempt of it, made.

    Raises:
        WriteRequestError: The arguments contradict each other or the table.
        UnsupportedWriteError: The table has a feature that is not honoured here.
        UnwritableTypeError: A column can't be stored without loss.
        SchemaMismatchError: Columns don't fit the table.
        ConstraintViolatedError: A row breaks a rule of the table.
        ConcurrentWriteError: Another writer changed what this write depends on.
    """
    context = current_context()
    target = resolve_target(table, context)
    request = WriteRequest(
        table=target.label,
        files=TableFiles(target.uri, context.storage),
        key=resolve_key(key, uri=target.uri, context=context),
        mode=mode,
        partition_by=None if partition_by is None else name_list(partition_by),
        replace_where=replace_where,
        merge_on=name_list(merge_on),
        schema_mode=schema_mode,
        context=context,
    )
    return write_once(request, target.name, lambda plan: _write(ds, plan))


def _write(ds: Dataset, plan: WritePlan) -> Write:
    write = Write(plan)
    try:
        ds.write_datasink(make_sink(write, lambda: _schema(ds)))
    except BaseException as error:
        write.abandon(error)
        own = list(_own_errors(error))
        # The innermost says what is wrong; Ray's wrappers stay visible behind it.
        told = own[-1] if own else own_error(error)
        if told is error:
            raise
        raise told from error
    return write


def _schema(ds: Dataset) -> pa.Schema | None:
    import pyarrow as pa

    schema = ds.schema()
    base = None if schema is None else schema.base_schema
    return base if isinstance(base, pa.Schema) else None


def _own_errors(error: BaseException) -> Iterator[HeadraceError]:
    """Our errors inside the wrappers that Ray puts around what a worker raises, outside in."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, HeadraceError):
            yield seen
        seen = getattr(seen, "cause", None) or seen.__cause__
