"""The worker's part of a write: rows in, data files out, nothing visible yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.guards import Guard
from headrace.delta.log import Action
from headrace.delta.predicates import Predicate
from headrace.delta.row_masks import holds_for
from headrace.delta.rules import fill_missing, first_row, is_computed
from headrace.delta.schema import Struct
from headrace.delta.write_columns import Columns, refuse_extra
from headrace.delta.write_files import FilePlan, FileWriter
from headrace.delta.write_mapping import with_physical_names
from headrace.delta.write_partitions import empty_as_null, partition_names
from headrace.delta.write_schema import data_schema, extend_schema, partition_fields, storable
from headrace.delta.write_stats import plan_leaves
from headrace.delta.write_texts import fit_texts
from headrace.exceptions import ConstraintViolatedError, SchemaMismatchError


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """What every worker of a write has to know; it travels to them.

    Attributes:
        table: Name of the table, for error texts.
        files: Where data files go.
        schema: Columns known so far: the table's, or those of the first rows.
        grows: Whether the data may bring columns that the schema lacks.
        partition_columns: Names of the partition columns.
        configuration: Table properties.
        guard: The table's rules.
        replace_where: Only rows for which it holds may be written; its text is beside it.
        merge_on: Key columns of a merge; the keys of the rows are kept.
        mapping_seed: What names of new columns in files are made from, where the table maps them.
    """

    table: str
    files: FilePlan
    schema: Struct
    grows: bool
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    guard: Guard
    replace_where: tuple[Predicate, str] | None = None
    merge_on: tuple[str, ...] = ()
    mapping_seed: str | None = None

    def grown(self, schema: Struct, found: Struct) -> Struct:
        """A schema with the columns that only the data has."""
        full = extend_schema(schema, found)
        seed = self.mapping_seed
        return full if seed is None else with_physical_names(full, seed)


@dataclass(frozen=True)
class Part:
    """What one worker wrote.

    Attributes:
        added: The `add` actions of its files.
        schema: The columns it wrote.
        rows: How many rows.
        keys: The rows' keys, in a merge.
    """

    added: list[Action]
    schema: Struct
    rows: int
    keys: pa.Table | None = None


@dataclass
class RowWriter:
    """Checks, converts and writes rows; one per worker.

    Attributes:
        plan: What to do.
    """

    plan: RowPlan
    _schema: Struct = field(init=False)
    _writer: FileWriter | None = None
    _added: list[Action] = field(default_factory=list)
    _rows: int = 0
    _keys: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._schema = self.plan.schema

    def write(self, data: pa.Table) -> None:
        """Write rows, or raise before any of them reaches a file."""
        plan = self.plan
        if plan.grows:
            self._grow(plan.grown(self._schema, data_schema(plan.table, data.schema)))
        else:
            extra = [name for name in data.schema.names if self._schema.find(name) is None]
            refuse_extra(plan.table, extra, self._schema)
        rows = self.convert(data)
        if rows.num_rows:
            self._file_writer().write(rows)
            self._rows += rows.num_rows
            if self.plan.merge_on:
                self._keys.append(self._keys_of(data, rows))

    def convert(self, data: pa.Table) -> pa.Table:
        """The rows as they are stored, with every rule of the table checked."""
        plan = self.plan
        schema = storable(self._schema)
        rows = Columns(plan.table).convert(data, schema)
        present = {name.lower() for name in data.schema.names}
        rows = fill_missing(plan.table, rows, present, schema)
        rows = fit_texts(rows, schema)
        rows = empty_as_null(rows, partition_fields(schema, plan.partition_columns))
        plan.guard.check(rows)
        self._check_replaced(rows)
        return rows

    def close(self) -> Part:
        """Finish the files."""
        self._flush()
        keys = pa.concat_tables(self._keys) if self._keys else None
        return Part(self._added, self._schema, self._rows, keys)

    def abandon(self) -> None:
        """Delete what was written so far."""
        if self._writer is not None:
            self._writer.abandon()
        self.plan.files.delete(self._added)

    def _keys_of(self, data: pa.Table, rows: pa.Table) -> pa.Table:
        present = {name.lower() for name in data.schema.names}
        missing = [
            child.name
            for child in self._schema.fields
            if child.name.lower() not in present and not is_computed(child)
        ]
        if missing and not self.plan.grows:
            raise SchemaMismatchError(
                table=self.plan.table,
                problem=f"a merge replaces whole rows, and {', '.join(missing)} is missing",
                found=f"The table has: {', '.join(self._schema.names)}.",
                fix="join the missing columns first, or merge with Spark",
            )
        names = [f.name for f in partition_fields(self._schema, self.plan.merge_on)]
        return rows.select(names)

    def _grow(self, schema: Struct) -> None:
        if schema != self._schema:
            self._flush()
            self._schema = schema

    def _flush(self) -> None:
        if self._writer is not None:
            self._added += self._writer.close()
            self._writer = None

    def _file_writer(self) -> FileWriter:
        if self._writer is None:
            schema, plan = storable(self._schema), self.plan
            names = partition_names(plan.table, schema, plan.partition_columns)
            leaves = plan_leaves(schema, names, plan.configuration)
            self._writer = FileWriter(plan.files, schema, names, leaves)
        return self._writer

    def _check_replaced(self, rows: pa.Table) -> None:
        if self.plan.replace_where is None or not rows.num_rows:
            return
        predicate, text = self.plan.replace_where
        good = holds_for(rows, predicate)
        if good.false_count:
            raise ConstraintViolatedError(
                table=self.plan.table,
                constraint="replace_where",
                expression=text,
                row=first_row(rows, pc.invert(good)),
            )
