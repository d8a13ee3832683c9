"""Which files a commit removes, by the mode of the write, and which rows of them it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.actions import partition_column
from headrace.delta.data_files import ReadSpec, read_files
from headrace.delta.log import Action
from headrace.delta.partitions import partition_scalar
from headrace.delta.predicates import And, Column, Comparison, Literal, Predicate, columns_of
from headrace.delta.pruning import files_that_match
from headrace.delta.row_masks import holds_for
from headrace.delta.rules import first_row
from headrace.delta.schema import Field, Primitive
from headrace.delta.snapshot import Snapshot
from headrace.delta.types import arrow_type
from headrace.delta.write_files import FileWriter
from headrace.delta.write_plan import WritePlan
from headrace.delta.write_rows import Part, RowPlan
from headrace.delta.write_schema import partition_fields, storable
from headrace.delta.write_stats import plan_leaves
from headrace.exceptions import ConstraintViolatedError, UnsupportedWriteError

_ROW = "__headrace_row"

FileRow = Mapping[str, Any]


@dataclass(frozen=True)
class Removal:
    """What a commit takes away, and what it puts back.

    Attributes:
        removes: `remove` actions.
        adds: `add` actions of the rows that stay, from files of which only a part goes.
    """

    removes: list[Action] = field(default_factory=list)
    adds: list[Action] = field(default_factory=list)


@dataclass(frozen=True)
class Rewriter:
    """Takes rows out of one file; it travels to the workers.

    Attributes:
        read: How the table's files are read.
        rows: How they are written.
        drop: Rows for which it holds go, or None in a merge.
        keys: Keys of the rows that go, in a merge.
    """

    read: ReadSpec
    rows: RowPlan
    drop: Predicate | None
    keys: pa.Table | None

    def __call__(self, file: FileRow) -> list[Action] | None:
        """Write a file's remaining rows; None when no row has to go."""
        table = pa.concat_tables(read_files(self.read, pa.Table.from_pylist([dict(file)])))
        gone = self._gone(table)
        if not gone.true_count:
            return None
        kept = table.filter(pc.invert(gone))
        if not kept.num_rows:
            return []
        schema, plan = storable(self.read.schema), self.rows
        leaves = plan_leaves(schema, plan.partition_columns, plan.configuration)
        writer = FileWriter(plan.files, schema, plan.partition_columns, leaves)
        writer.write(kept.select(schema.names))
        return writer.close()

    def _gone(self, table: pa.Table) -> pa.BooleanArray:
        if self.keys is None:
            if self.drop is None:
                raise TypeError("a rewrite needs a predicate or keys")
            return holds_for(table, self.drop)
        return matches(table, self.keys)


Runner = Callable[[Rewriter, Sequence[FileRow]], Iterable[list[Action] | None]]


def one_by_one(rewriter: Rewriter, files: Sequence[FileRow]) -> Iterator[list[Action] | None]:
    """Rewrite files here, one after the other."""
    return map(rewriter, files)


def matches(table: pa.Table, keys: pa.Table) -> pa.BooleanArray:
    """For each row whether its key is among the keys; a null key never is."""
    numbered = table.select(keys.column_names).append_column(
        _ROW, pa.array(np.arange(table.num_rows))
    )
    found = numbered.join(keys, keys=keys.column_names, join_type="left semi")
    return pc.is_in(numbered[_ROW], value_set=found[_ROW].combine_chunks()).combine_chunks()


def plan_removal(
    plan: WritePlan, snapshot: Snapshot, parts: Sequence[Part], run: Runner
) -> Removal:
    """What has to go from a version so that the write has happened.

    Args:
        plan: The write.
        snapshot: The version that the commit follows.
        parts: What the workers wrote.
        run: Rewrites files; on the workers where there are some.
    """
    mode, where = plan.request.mode, plan.rows.replace_where
    if mode == "append":
        return Removal()
    if mode == "merge":
        return _merge(plan, snapshot, parts, run)
    if where is not None:
        return _replace(plan, snapshot, where[0], run)
    if mode == "overwrite_partitions" and snapshot.partition_columns:
        return Removal(list(_removes(snapshot, _touched(snapshot, parts))))
    return Removal(list(_removes(snapshot, snapshot.files)))


def _touched(snapshot: Snapshot, parts: Sequence[Part]) -> pa.Table:
    """Files of the partitions that were written to, compared by value and not by text."""
    columns = partition_fields(snapshot.schema, snapshot.partition_columns)
    added = (action["add"]["partitionValues"] for part in parts for action in part.added)
    wanted = {_values(columns, values) for values in added}
    texts = [snapshot.partition_values(column.name).to_pylist() for column in columns]
    names = [column.physical_name for column in columns]
    mask = [
        _values(columns, dict(zip(names, row, strict=True))) in wanted
        for row in zip(*texts, strict=True)
    ]
    return snapshot.files.filter(pa.array(mask, pa.bool_()))


def _values(columns: Sequence[Field], texts: Mapping[str, str | None]) -> tuple[Any, ...]:
    return tuple(_typed(column, texts.get(column.physical_name)) for column in columns)


def _typed(column: Field, text: str | None) -> Any:
    kind = column.type.name if isinstance(column.type, Primitive) else ""
    value = partition_scalar(text or None, kind, arrow_type(column.type)).as_py()
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124


def _replace(plan: WritePlan, snapshot: Snapshot, where: Predicate, run: Runner) -> Removal:
    partitions = {name.lower() for name in snapshot.partition_columns}
    mask = files_that_match(snapshot.files, where, snapshot.metadata)
    candidates = snapshot.files.filter(pa.array(mask, pa.bool_()))
    if {name.lower() for name in columns_of(where)} <= partitions:
        # The whole file is of one partition: the predicate holds for all of its rows or for none.
        good = holds_for(_partition_rows(snapshot, candidates), where)
        return Removal(list(_removes(snapshot, candidates.filter(good))))
    return _rewrite(
        plan, snapshot, candidates, Rewriter(_spec(plan, snapshot), plan.rows, where, None), run
    )


def _partition_rows(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """A row per file with the typed values of its partition."""
    columns = {}
    for child in partition_fields(snapshot.schema, snapshot.partition_columns):
        kind = child.type.name if isinstance(child.type, Primitive) else ""
        arrow = arrow_type(child.type)
        texts = files[partition_column(child.physical_name)].to_pylist()
        values = [partition_scalar(text or None, kind, arrow) for text in texts]
        columns[child.name] = pa.array([value.as_py() for value in values], arrow)
    return pa.table(columns)


def _merge(plan: WritePlan, snapshot: Snapshot, parts: Sequence[Part], run: Runner) -> Removal:
    found = [part.keys for part in parts if part.keys is not None]
    if not found:
        return Removal()
    keys = pa.concat_tables(found)
    _refuse_duplicates(plan, keys)
    where = _key_range(keys, snapshot)
    files = snapshot.files
    if where is not None:
        files = files.filter(
            pa.array(files_that_match(files, where, snapshot.metadata), pa.bool_())
        )
    return _rewrite(
        plan, snapshot, files, Rewriter(_spec(plan, snapshot), plan.rows, None, keys), run
    )


def _refuse_duplicates(plan: WritePlan, keys: pa.Table) -> None:
    counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    bad = pc.greater(counts["count_all"], 1)
    for name in keys.column_names:
        bad = pc.and_(bad, pc.is_valid(counts[name]))
    if pc.any(bad).as_py():
        raise ConstraintViolatedError(
            table=plan.request.table,
            constraint="merge_on",
            expression=f"several rows of the data have the same {', '.join(keys.column_names)}",
            row=first_row(counts.drop_columns("count_all"), bad),
        )


def _key_range(keys: pa.Table, snapshot: Snapshot) -> Predicate | None:
    """A predicate that holds for every row that a key may match, from the keys' bounds."""
    result: Predicate | None = None
    for name in keys.column_names:
        column = keys[name]
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
            continue
        bounds = pc.min_max(column)
        if not bounds["min"].is_valid:
            continue
        child = snapshot.schema.find(name)
        path = Column((child.name if child else name,))
        low = Comparison(">=", path, Literal(bounds["min"]))
        both = And(low, Comparison("<=", path, Literal(bounds["max"])))
        result = both if result is None else And(result, both)
    return result


def _spec(plan: WritePlan, snapshot: Snapshot) -> ReadSpec:
    return ReadSpec(
        uri=snapshot.uri,
        version=snapshot.version,
        schema=snapshot.schema,
        columns=tuple(snapshot.schema.names),
        partition_columns=snapshot.partition_columns,
        mapping_mode=snapshot.mapping_mode,
        storage=plan.request.files.storage,
    )


def _rewrite(
    plan: WritePlan, snapshot: Snapshot, files: pa.Table, rewriter: Rewriter, run: Runner
) -> Removal:
    rows = files.drop_columns([c for c in files.column_names if c == "stats_parsed"]).to_pylist()
    changed, adds = [], []
    for index, added in enumerate(run(rewriter, rows)):
        if added is not None:
            changed.append(index)
            adds += added
    if changed:
        _check_rewritable(plan, snapshot)
    return Removal(list(_removes(snapshot, files.take(pa.array(changed, pa.int64())))), adds)


def _check_rewritable(plan: WritePlan, snapshot: Snapshot) -> None:
    for name in ("delta.enableChangeDataFeed", "delta.enableRowTracking"):
        if snapshot.configuration.get(name, "false").lower() == "true":
            raise UnsupportedWriteError(
                table=plan.request.table,
                feature=name,
                found="This write changes single rows of files, which such a table has to record.",
                fix="write it with Spark, or replace whole partitions",
            )


def _removes(snapshot: Snapshot, files: pa.Table) -> Iterator[Action]:
    columns = partition_fields(snapshot.schema, snapshot.partition_columns)
    names = [column.physical_name for column in columns]
    wanted = ["path", "size", "dv", *(partition_column(name) for name in names)]
    for row in files.select(wanted).to_pylist():
        remove = {
            "path": row["path"],
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {name: row[partition_column(name)] for name in names},
            "size": row["size"],
        }
        if row["dv"] is not None:
            vector = row["dv"].items()
            remove["deletionVector"] = {name: value for name, value in vector if value is not None}
        yield {"remove": remove}
