"""A Ray Data datasource over a pinned version of a Delta table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.bridge.filters import necessary
from headrace.bridge.plan import ReadTask, plan_reads
from headrace.bridge.waiting import wait_for_cpu
from headrace.delta.binding import bind
from headrace.delta.data_files import ReadSpec, read_files
from headrace.delta.predicates import And, Predicate
from headrace.delta.protocol import Metadata
from headrace.delta.pruning import files_that_match
from headrace.exceptions import HeadraceError

if TYPE_CHECKING:
    from ray.data import Datasource
    from ray.data.expressions import Expr

# Compressed Parquet grows about this much in memory.
_EXPANSION = 3
_TARGET_MIB = 128
_SMALLEST_TARGET_MIB = 16
_TASKS_PER_CPU = 4


@dataclass(frozen=True)
class Request:
    """A read as decided on the driver: what to read of which files.

    Attributes:
        spec: What all files have in common.
        files: Rows of `Snapshot.files`, pruned.
        metadata: The version's metadata, for more pruning.
    """

    spec: ReadSpec
    files: pa.Table = field(repr=False)
    metadata: Metadata = field(repr=False)

    def keep(self, predicate: Predicate) -> Request:
        """Less the files that the bound predicate rules out."""
        mask = files_that_match(self.files, predicate, self.metadata)
        return replace(self, files=self.files.filter(pa.array(mask)))

    def select(self, columns: list[str]) -> Request:
        """Only these columns."""
        return replace(self, spec=replace(self.spec, columns=tuple(columns)))

    def filtered(self, predicate: Predicate) -> Request:
        """Only rows for which the bound predicate is true, by SQL's rules."""
        both = predicate if self.spec.filter is None else And(self.spec.filter, predicate)
        return replace(self.keep(predicate), spec=replace(self.spec, filter=both))

    def matching(self, expr: Expr) -> Request:
        """Only rows for which an expression is true, by the rules of Ray Data."""
        found = expr.to_pyarrow()
        spec = self.spec
        both = found if spec.expression is None else spec.expression & found
        names = tuple(dict.fromkeys([*spec.expression_columns, *_columns(expr)]))
        changed = replace(self, spec=replace(spec, expression=both, expression_columns=names))
        predicate = necessary(expr)
        if predicate is None:
            return changed
        try:
            bound = bind(predicate, spec.schema, table=spec.uri, text=str(expr))
        except HeadraceError:
            return changed  # only pruning is lost: the expression itself still decides
        return changed.keep(bound)

    @property
    def is_filtered(self) -> bool:
        """Whether some rows of a file may be left out."""
        return self.spec.filter is not None or self.spec.expression is not None


def make_source(request: Request) -> Datasource:
    """A Ray Data datasource for a request.

    It gives as many read tasks as the plan has, whatever parallelism it is asked for: with
    fewer tasks than blocks Ray would split every block and no longer fuse the next map into the
    read. Selections and filters of the Dataset are pushed into it.
    """
    return _source_class()(request)


def read_task_function(spec: ReadSpec, files: pa.Table) -> Callable[[], Iterator[pa.Table]]:
    """What a read task runs: it reads its files, and nothing else, so a retry gives the same."""
    payload = _to_bytes(files)

    def read_delta() -> Iterator[pa.Table]:
        for table in read_files(spec, _from_bytes(payload)):
            yield table if spec.columns else _counted(table)

    return read_delta


def _counted(table: pa.Table) -> pa.Table:
    """A table without columns in the form in which Ray keeps its number of rows."""
    from ray.data._internal.arrow_block import _BATCH_SIZE_PRESERVING_STUB_COL_NAME as STUB

    return pa.table({STUB: pa.nulls(table.num_rows)})


def _source_class() -> Any:
    """The class itself; made on first use, since its base lives in Ray."""
    global _SOURCE  # noqa: PLW0603 - one class per process
    if _SOURCE is None:
        _SOURCE = _define_source()
    return _SOURCE


_SOURCE: Any = None


def _define_source() -> Any:  # noqa: C901 - a class with short methods
    from ray.data import Datasource
    from ray.data import ReadTask as RayReadTask
    from ray.data.block import BlockMetadata

    class DeltaDatasource(Datasource):  # type: ignore[misc]
        def __init__(self, request: Request) -> None:
            super().__init__()
            self._request = request
            self._projection_map: dict[str, str] | None = None
            self._tasks: list[ReadTask] | None = None

        def get_name(self) -> str:
            return "Delta"

        def estimate_inmemory_data_size(self) -> int | None:
            return sum(task.size_bytes for task in self._plan()) * _EXPANSION

        def supports_projection_pushdown(self) -> bool:
            return True

        def supports_predicate_pushdown(self) -> bool:
            return True

        def apply_projection(self, projection_map: dict[str, str] | None) -> Datasource:
            clone = super().apply_projection(projection_map)
            columns = clone._get_data_columns()  # noqa: SLF001 - a hook for subclasses
            if columns is not None:
                clone._request = self._request.select(columns)  # noqa: SLF001
            return clone

        def apply_predicate(self, predicate_expr: Expr) -> Datasource:
            clone = copy.copy(self)
            clone._request = self._request.matching(predicate_expr)  # noqa: SLF001
            clone._tasks = None  # noqa: SLF001
            return clone

        def get_read_tasks(
            self,
            parallelism: int,  # noqa: ARG002 - see make_source
            per_task_row_limit: int | None = None,
            data_context: Any = None,
        ) -> list[RayReadTask]:
            if data_context is not None:  # Ray is about to run, not just to look at the plan
                wait_for_cpu(data_context)
            spec = self._request.spec
            schema = spec.arrow_schema if spec.columns else _counted(pa.table({})).schema
            tasks = self._plan() or [ReadTask(_no_files(self._request.files))]
            return [
                RayReadTask(
                    read_task_function(spec, task.files),
                    BlockMetadata(
                        num_rows=None if self._request.is_filtered else task.row_count,
                        size_bytes=task.size_bytes * _EXPANSION,
                        exec_stats=None,
                        input_files=None,
                    ),
                    schema=schema,
                    per_task_row_limit=per_task_row_limit,
                )
                for task in tasks
            ]

        def _plan(self) -> list[ReadTask]:
            if self._tasks is None:
                self._tasks = plan_request(self._request)
            return self._tasks

    return DeltaDatasource


def plan_request(request: Request) -> list[ReadTask]:
    """Tasks for a request: enough to keep the cluster's CPUs busy, none needlessly small."""
    import ray

    cpus = float(ray.cluster_resources().get("CPU", 1)) if ray.is_initialized() else 1.0
    total_mib = sum(value or 0 for value in request.files["size"].to_pylist()) / (1 << 20)
    target = total_mib / max(cpus * _TASKS_PER_CPU, 1)
    target = min(max(target, _SMALLEST_TARGET_MIB), _TARGET_MIB)
    return plan_reads(request.files, target_mib=target, min_tasks=int(cpus))


def _no_files(files: pa.Table) -> pa.Table:
    empty = files.slice(0, 0)
    nothing = pa.array([], pa.int64())
    for name in ("rows", "start", "end"):
        if name not in empty.column_names:
            empty = empty.append_column(name, nothing)
    return empty


def _columns(expr: Any) -> list[str]:
    from ray.data._internal.planner.plan_expression.expression_visitors import (
        _ColumnReferenceCollector,
    )

    collector = _ColumnReferenceCollector()
    collector.visit(expr)
    return list(collector.get_column_refs() or [])


def _to_bytes(files: pa.Table) -> bytes:
    """Rows of a plan for the way to a worker; statistics stay behind."""
    kept = [name for name in files.column_names if not name.startswith("stats")]
    table = files.select(kept)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(payload: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.BufferReader(payload)) as reader:
        return reader.read_all()
