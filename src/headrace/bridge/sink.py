"""A Ray Data sink that makes one Delta commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.delta.access import naming_store_errors
from headrace.delta.finish import Write
from headrace.delta.log import Action
from headrace.delta.write_modes import FileRow, Rewriter
from headrace.delta.write_plan import WritePlan
from headrace.delta.write_rows import Part, RowPlan, RowWriter
from headrace.delta.write_schema import data_schema
from headrace.engines.own_errors import raising_own_error

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Datasink
    from ray.data.datasource.datasink import WriteResult


def make_sink(write: Write, schema_of_empty: Callable[[], pa.Schema | None]) -> Datasink:
    """A sink whose workers write data files and whose driver commits them.

    Args:
        write: The write; it stays on the driver and has the version in the end.
        schema_of_empty: Tells the columns of a dataset that turned out to have no rows.
    """
    from ray.data import Datasink

    class DeltaSink(Datasink):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = write.plan.rows
            self.write_on_driver: Write | None = write

        def __getstate__(self) -> dict[str, Any]:
            # A worker needs what to do with rows; the snapshot with all its files stays here.
            return {"rows": self.rows, "write_on_driver": None}

        def on_write_start(self, schema: pa.Schema | None = None) -> None:
            write.plan = start(write.plan, schema)
            self.rows = write.plan.rows

        def write(self, blocks: Iterable[Any], _ctx: object) -> Part:
            # On its way to the driver a wrapper of Ray's loses what it was raised from.
            with raising_own_error():
                return write_blocks(self.rows, blocks)

        def on_write_complete(self, write_result: WriteResult[Part]) -> None:
            parts = write_result.write_returns
            if write.plan.replaces_schema and not any(part.schema.fields for part in parts):
                write.plan = start(write.plan, schema_of_empty())
            write.commit(parts, on_workers)

        def on_write_failed(self, error: Exception) -> None:
            write.abandon(error)

        def get_name(self) -> str:
            return "Delta"

    return DeltaSink()


def start(plan: WritePlan, schema: pa.Schema | None) -> WritePlan:
    """Check the columns of the first rows before any worker writes.

    Raises:
        HeadraceError: The table can't take them.
    """
    if schema is None or not schema.names:
        return plan
    plan = plan.with_schema(data_schema(plan.request.table, schema))
    # A conversion of no rows fails where one of many would, by type or by name.
    RowWriter(plan.rows).write(schema.empty_table())
    return plan


def write_blocks(rows: RowPlan, blocks: Iterable[Any]) -> Part:
    """Write blocks to data files; none of them is kept when one fails."""
    from ray.data.block import BlockAccessor

    writer = RowWriter(rows)
    try:
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            # An empty block of a failed or filtered batch may have lost its columns.
            if table.num_columns:
                with naming_store_errors(rows.files.files.uri):
                    writer.write(table)
        with naming_store_errors(rows.files.files.uri):
            return writer.close()
    except BaseException:
        writer.abandon()
        raise


def on_workers(rewriter: Rewriter, files: Sequence[FileRow]) -> Iterator[list[Action] | None]:
    """Rewrite files on the cluster; the answers are in the order of the files."""
    import ray

    shared = ray.put(rewriter)
    task = ray.remote(_rewrite)
    yield from ray.get([task.remote(shared, file) for file in files])


def _rewrite(rewriter: Rewriter, file: FileRow) -> list[Action] | None:
    return rewriter(file)
