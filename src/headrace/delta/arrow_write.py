"""Write Arrow, pandas or polars rows to a Delta table from one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.context import current_context
from headrace.delta.access import naming_store_errors
from headrace.delta.finish import Write, write_once
from headrace.delta.log import TableFiles
from headrace.delta.target import name_list, resolve_target
from headrace.delta.transaction import resolve_key
from headrace.delta.write_plan import Mode, SchemaMode, WritePlan, WriteRequest
from headrace.delta.write_rows import Part, RowWriter
from headrace.delta.write_schema import data_schema
from headrace.exceptions import WriteRequestError
from headrace.tables import TableRef


def write_arrow(
    data: Any,
    table: TableRef | str | Path,
    *,
    mode: Mode = "append",
    partition_by: Sequence[str] | str = (),
    replace_where: str | None = None,
    merge_on: Sequence[str] | str = (),
    schema_mode: SchemaMode | None = None,
    key: tuple[str, ...] | None = None,
) -> TableRef:
    """Write rows that are in memory to a Delta table in one commit, exactly once.

    The table's rules, the types and the modes are those of `headrace.to_delta`.

    Args:
        data: A pyarrow table or record batch, a pandas or polars DataFrame, or anything that
            exports an Arrow stream. A pandas index is left out.
        table: A name in the lake, a path, an `s3://` address, or a reference (its table is meant).
        mode: `append`, `overwrite`, `overwrite_partitions` or `merge`.
        partition_by: Partition columns of a new table.
        replace_where: SQL predicate of the rows that an overwrite replaces.
        merge_on: Key columns of a merge.
        schema_mode: `merge` adds columns, `overwrite` takes the schema of the data.
        key: Identity of the write; the task's when left out.

    Returns:
        The version that this write, or an earlier attempt of it, made.

    Raises:
        DataError: The table or the data does not allow it; the text says why.
        ConcurrentWriteError: Another writer changed what this write depends on.

    Example:
        >>> write_arrow({"id": [1, 2]}, "small/table", mode="overwrite")  # doctest: +SKIP
    """
    context = current_context()
    target = resolve_target(table, context)
    request = WriteRequest(
        table=target.label,
        files=TableFiles(target.uri, context.storage),
        key=resolve_key(key, uri=target.uri, context=context),
        mode=mode,
        partition_by=name_list(partition_by) or None,
        replace_where=replace_where,
        merge_on=name_list(merge_on),
        schema_mode=schema_mode,
        context=context,
    )
    rows = to_arrow(data, request.table)
    return write_once(request, target.name, lambda plan: _write(rows, plan))


def to_arrow(data: Any, table: str) -> pa.Table:
    """Rows of any of the usual kinds as an Arrow table.

    Raises:
        WriteRequestError: It is of another kind.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, dict):
        return pa.table(data)
    if type(data).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    raise WriteRequestError(
        table=table,
        problem=f"{type(data).__name__} does not hold rows",
        found="Known: pyarrow tables, pandas and polars DataFrames, Arrow streams.",
        fix="convert it, for example with pyarrow.table({...})",
    )


def _write(rows: pa.Table, plan: WritePlan) -> Write:
    write = Write(plan.with_schema(data_schema(plan.request.table, rows.schema)))
    try:
        write.commit([_files(rows, write.plan)])
    except BaseException as error:
        write.abandon(error)
        raise
    return write


def _files(rows: pa.Table, plan: WritePlan) -> Part:
    writer = RowWriter(plan.rows)
    writer.write(rows.schema.empty_table())  # the columns are checked even when there is no row
    with naming_store_errors(plan.request.files.uri):
        for batch in rows.to_batches():
            writer.write(pa.Table.from_batches([batch]))
        return writer.close()
