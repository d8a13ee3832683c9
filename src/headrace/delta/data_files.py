"""Read data files of a pinned version into tables that have the table's schema."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.delta.access import is_refusal, naming_store_errors
from headrace.delta.actions import partition_column
from headrace.delta.calendar import rebase_of
from headrace.delta.conform import FileRules, MismatchError, conform_column, find_child, pad
from headrace.delta.defaults import value_if_missing
from headrace.delta.deletion_vectors import Chosen, load_deleted_rows
from headrace.delta.evaluate import keep_rows
from headrace.delta.location import filesystem_path, open_filesystem, resolve_file
from headrace.delta.parquet_files import count_leaves, middle_of, naming_damage, open_parquet
from headrace.delta.partitions import partition_scalar
from headrace.delta.predicates import Predicate, columns_of
from headrace.delta.row_groups import may_match
from headrace.delta.schema import Field, Primitive, Struct, with_char_types
from headrace.delta.types import arrow_schema, arrow_type
from headrace.exceptions import (
    RowCountError,
    RowCountWarning,
    SnapshotExpiredError,
    UnreadableColumnError,
)
from headrace.profiles.storage import Storage

# Bytes of encoded Parquet that one batch is decoded from: a few batches make a block. Rows are
# bounded too, since a text that is stored once may come back in every row.
_BATCH_BYTES = 32 << 20
_BATCH_ROWS = (8_192, 262_144)


@dataclass(frozen=True)
class ReadSpec:
    """What every file of a read has in common. It travels to the workers.

    Attributes:
        uri: The table's root.
        version: The pinned version.
        schema: The whole table's schema.
        columns: Names of the wanted columns, in order.
        partition_columns: Names of the partition columns.
        mapping_mode: How columns are found in files: `none`, `name` or `id`.
        storage: Credentials; they never show in a text.
        either: Names of columns that are a partition value in some files and data in others.
        filter: Rows to keep, or None for all.
        expression: Rows to keep, by Arrow's rules instead of SQL's; Ray pushes such a one down.
        expression_columns: The columns that it looks at.
    """

    uri: str
    version: int
    schema: Struct
    columns: tuple[str, ...]
    partition_columns: tuple[str, ...] = ()
    mapping_mode: str = "none"
    either: tuple[str, ...] = ()
    storage: Storage = field(default_factory=Storage, repr=False)
    filter: Predicate | None = None
    expression: pc.Expression | None = None
    expression_columns: tuple[str, ...] = ()

    def fields(self, names: Sequence[str]) -> list[Field]:
        """Fields of the table by name."""
        by_name = {child.name: child for child in self.schema.fields}
        return [by_name[name] for name in names]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the tables that a read gives."""
        return arrow_schema(Struct(tuple(self.fields(self.columns))))

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The wanted columns, then those that only the filter looks at."""
        extra = columns_of(self.filter) if self.filter is not None else []
        return tuple(dict.fromkeys([*self.columns, *extra, *self.expression_columns]))


def read_files(spec: ReadSpec, files: pa.Table) -> Iterator[pa.Table]:
    """Read files, or byte ranges of them, one after the other.

    Args:
        spec: What they have in common.
        files: Rows of a plan: the columns of `Snapshot.files`, and optionally `rows` (expected in
            the file), `start` and `end` (bytes), `only` (a deletion vector whose rows alone count).

    Yields:
        Tables with the schema of the spec; at least one, which may be empty.

    Raises:
        SnapshotExpiredError: A file is gone.
        UnreadableFileError: A file is damaged, or no Parquet.
        RowCountError: A file has another size and number of rows than the log says.
        UnreadableColumnError: A column can't become the table's type.
        StorageAccessError: A store refuses the credentials, or does not answer.
    """
    store = _Store(spec)
    empty = True
    for row in files.to_pylist():
        with naming_store_errors(resolve_file(spec.uri, row["path"])):
            for table in store.read(row):
                empty = False
                yield table
    if empty:
        yield spec.arrow_schema.empty_table()


@dataclass
class _Store:
    """Where the files are, with credentials that are good at the moment."""

    spec: ReadSpec
    storage: Storage = field(init=False)
    filesystem: fs.FileSystem = field(init=False)

    def __post_init__(self) -> None:
        self._use(self.spec.storage.fresh())

    def _use(self, storage: Storage) -> None:
        self.storage = storage
        self.filesystem = open_filesystem(self.spec.uri, storage)

    def read(self, row: Mapping[str, Any]) -> Iterator[pa.Table]:
        """Read one row of a plan, once more with new credentials where the store refuses them."""
        if self.storage.needs_refresh():
            self._use(self.spec.storage.fresh())
        done = 0
        try:
            for table in read_file(self.spec, self.filesystem, row):
                yield table
                done += 1
        except OSError as error:
            if not (self.spec.storage.refresh_command and is_refusal(error)):
                raise
            self._use(self.spec.storage.renewed(self.storage))
            yield from islice(read_file(self.spec, self.filesystem, row), done, None)


def read_file(
    spec: ReadSpec, filesystem: fs.FileSystem, row: Mapping[str, Any]
) -> Iterator[pa.Table]:
    """Read one row of a plan; see `read_files`."""
    address = resolve_file(spec.uri, row["path"])
    try:
        chosen = _chosen_rows(spec, filesystem, row, address)
        with filesystem.open_input_file(filesystem_path(address)) as source:
            is_local = isinstance(filesystem, fs.LocalFileSystem)
            with naming_damage(spec.uri, spec.version, address):
                opened = open_parquet(source, pre_buffer=not is_local)
            with opened as file:
                _check_rows(spec, file, row, size=source.size(), address=address)
                yield from _OpenFile(spec, file, row, chosen, address).tables()
    except FileNotFoundError as error:
        raise SnapshotExpiredError(table=spec.uri, version=spec.version, file=address) from error
    except MismatchError as error:
        raise UnreadableColumnError(
            file=address, column=error.column, found=error.found, wanted=error.wanted
        ) from error


def _chosen_rows(
    spec: ReadSpec, filesystem: fs.FileSystem, row: Mapping[str, Any], address: str
) -> Chosen:
    try:
        found = [
            load_deleted_rows(filesystem, spec.uri, row[name]) if row.get(name) else None
            for name in ("dv", "only")
        ]
    except (ValueError, pa.ArrowInvalid) as error:
        raise UnreadableColumnError(
            file=address,
            column="(deletion vector)",
            found=f"a damaged deletion vector: {error}",
            wanted="row numbers",
        ) from error
    return Chosen(without=found[0], only=found[1])


def _check_rows(
    spec: ReadSpec, file: pq.ParquetFile, row: Mapping[str, Any], *, size: int, address: str
) -> None:
    """Refuse a file that was replaced; read one whose writer miscounted, as Spark does."""
    expected, found = row.get("rows"), file.metadata.num_rows
    if expected is None or expected == found:
        return
    if row.get("size") not in (None, size):
        raise RowCountError(
            table=spec.uri, version=spec.version, file=address, expected=expected, found=found
        )
    text = (
        f"{address} of {spec.uri} version {spec.version}: the log says {expected} rows, the file "
        f"holds {found}. All of them are read; counts that come from the log are off."
    )
    warnings.warn(RowCountWarning(text), stacklevel=2)


@dataclass
class _OpenFile:
    """A file whose footer is read."""

    spec: ReadSpec
    file: pq.ParquetFile
    row: Mapping[str, Any]
    chosen: Chosen
    address: str

    def tables(self) -> Iterator[pa.Table]:
        """The rows of this file, or of its byte range, batch by batch."""
        sources = self._sources()
        # In the file's order: batches come in the order in which leaves are asked for.
        leaves = sorted(leaf for source in sources if source for leaf in source.leaves)
        first = 0
        for group in range(self.file.num_row_groups):
            rows = self.file.metadata.row_group(group).num_rows
            if self._is_mine(group) and self._may_match(group, sources):
                yield from self._group(group, first, sources, leaves)
            first += rows

    def _group(
        self, group: int, first: int, sources: list[_Source | None], leaves: list[int]
    ) -> Iterator[pa.Table]:
        for batch, rows in self._batches(group, leaves):
            mask = self.chosen.mask(first, rows)
            first += rows
            # Rows go before texts are looked up and columns are converted: codes are small.
            kept = batch if mask is None or batch is None else batch.filter(mask)
            table = self._table(kept, rows if mask is None else mask.true_count, sources)
            if self.spec.filter is not None:
                table = keep_rows(table, self.spec.filter)
            if self.spec.expression is not None:
                table = table.filter(self.spec.expression)
            if table.num_rows:
                yield table.select(list(self.spec.columns))

    def _batches(
        self, group: int, leaves: list[int]
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        about = self.file.metadata.row_group(group)
        if not leaves:
            yield None, about.num_rows
            return
        size = sum(about.column(leaf).total_uncompressed_size for leaf in leaves)
        rows = int(about.num_rows * _BATCH_BYTES / max(size, 1))
        rows = min(max(rows, _BATCH_ROWS[0]), _BATCH_ROWS[1])
        # `reader` takes leaf numbers; the public call takes dotted names, which are ambiguous
        # for a column that has a dot in its name.
        batches = self.file.reader.iter_batches(
            rows, row_groups=[group], column_indices=leaves, use_threads=False
        )
        with naming_damage(self.spec.uri, self.spec.version, self.address):
            for batch in batches:
                yield batch, batch.num_rows

    def _table(
        self, batch: pa.RecordBatch | None, rows: int, sources: list[_Source | None]
    ) -> pa.Table:
        names = self.spec.read_columns
        columns = []
        for wanted, source in zip(self.spec.fields(names), sources, strict=True):
            if source is not None and batch is not None:
                rules = replace(self._rules, int96=source.is_int96)
                array = batch.column(source.position)
                columns.append(conform_column(array, source.field, wanted, rules))
            else:
                columns.append(self._constant(wanted, rows))
        table = pa.table(columns, names=list(names)) if columns else None
        return pa.table({"_": pa.nulls(rows)}).select([]) if table is None else table

    def _is_constant(self, wanted: Field) -> bool:
        name = wanted.name
        if name in self.spec.either:
            return self.row[partition_column(name)] is not None
        return name in self.spec.partition_columns

    def _constant(self, wanted: Field, rows: int) -> pa.Array:
        kind = arrow_type(wanted.type)
        if wanted.name not in self.spec.partition_columns:
            return _missing(wanted, rows)
        text = self.row[partition_column(wanted.physical_name)]
        name = _declared_name(wanted)
        return pad(pa.repeat(partition_scalar(text, name, kind), rows), name)

    def _sources(self) -> list[_Source | None]:
        """Where in the file each column is, in the order in which batches have them."""
        children = list(self.file.schema_arrow)
        mode = self.spec.mapping_mode
        if mode == "id":
            _check_has_ids(children)
        found: list[_Source | None] = []
        for wanted in self.spec.fields(self.spec.read_columns):
            index = None
            if not self._is_constant(wanted):
                index = find_child(children, wanted, mode)
            found.append(None if index is None else _source(self.file, children, index))
        chosen = sorted(source.index for source in found if source)
        return [source and replace(source, position=chosen.index(source.index)) for source in found]

    @property
    def _rules(self) -> FileRules:
        return FileRules(self.spec.mapping_mode, rebase_of(self.file.metadata.metadata))

    def _is_mine(self, group: int) -> bool:
        start, end = self.row.get("start"), self.row.get("end")
        middle = middle_of(self.file.metadata.row_group(group))
        return (start is None or middle >= start) and (end is None or middle < end)

    def _may_match(self, group: int, sources: list[_Source | None]) -> bool:
        if self.spec.filter is None or rebase_of(self.file.metadata.metadata).dates:
            return True
        about = self.file.metadata.row_group(group)
        fields = self.spec.fields(self.spec.read_columns)
        places = {
            wanted.name: source.leaves[0]
            for wanted, source in zip(fields, sources, strict=True)
            if source is not None and len(source.leaves) == 1 and not source.is_int96
        }
        return may_match(self.spec.filter, about, places, self.spec.schema)


def _missing(wanted: Field, rows: int) -> pa.Array:
    try:
        return pad(pa.repeat(value_if_missing(wanted), rows), _declared_name(wanted))
    except ValueError as error:
        raise MismatchError(wanted.name, error, arrow_type(wanted.type)) from error


def _declared_name(wanted: Field) -> str:
    declared = with_char_types(wanted)
    return declared.name if isinstance(declared, Primitive) else ""


@dataclass(frozen=True)
class _Source:
    """A column of the file: its top-level index, its leaves, its place in a batch."""

    index: int
    field: pa.Field
    leaves: tuple[int, ...]
    is_int96: bool
    position: int = 0


def _source(file: pq.ParquetFile, children: list[pa.Field], index: int) -> _Source:
    before = sum(count_leaves(child.type) for child in children[:index])
    leaves = tuple(range(before, before + count_leaves(children[index].type)))
    int96 = any(file.schema.column(leaf).physical_type == "INT96" for leaf in leaves)
    return _Source(index, children[index], leaves, int96)


def _check_has_ids(children: list[pa.Field]) -> None:
    if children and not any(_has_id(child) for child in children):
        raise MismatchError("(all)", "no field ids", "column mapping by id")


def _has_id(child: pa.Field) -> bool:
    """Whether a field, or one inside it, has a Parquet field id."""
    if b"PARQUET:field_id" in (child.metadata or {}):
        return True
    kind = child.type
    return pa.types.is_nested(kind) and any(
        _has_id(kind.field(index)) for index in range(kind.num_fields)
    )
