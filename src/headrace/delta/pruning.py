"""Which files can hold a row that a filter keeps, told from statistics alone.

Everything unknown counts as "may match": a file is left out only when its statistics prove that
no row of it is kept. Statistics may be cut short: texts to 32 characters, times to the
millisecond. A bound is widened by what may have been cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.actions import partition_column
from headrace.delta.evaluate import compare
from headrace.delta.partitions import parse_timestamp, partition_scalar
from headrace.delta.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    field_of,
    is_float,
    without_not,
)
from headrace.delta.protocol import Metadata
from headrace.delta.schema import Primitive, text_type_at
from headrace.delta.statistics import stats_columns
from headrace.delta.types import arrow_type

Mask = npt.NDArray[np.bool_]

_STRING_PREFIX = 32
_TIME_STEP = 999
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class Bounds:
    """What is known of one column in each of some files; null where nothing is.

    Attributes:
        low: No value is below it.
        high: No value is above it.
        nulls: Null values.
        rows: Rows.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Array
    rows: pa.Array

    @property
    def all_null(self) -> Mask:
        """Where the column surely has no value."""
        return known(pc.and_(pc.equal(self.nulls, self.rows), pc.greater(self.rows, 0)))

    @property
    def no_null(self) -> Mask:
        """Where the column surely has no null."""
        return known(pc.equal(self.nulls, 0))


class BoundsSource(Protocol):
    """Something that knows bounds of columns."""

    @property
    def count(self) -> int:
        """How many files it knows."""

    def bounds(self, path: tuple[str, ...]) -> Bounds | None:
        """Bounds of a column; None when it knows nothing."""


def files_that_match(files: pa.Table, predicate: Predicate, metadata: Metadata) -> Mask:
    """Which of a snapshot's files may hold a row that the bound predicate keeps."""
    return may_be_true(predicate, LogBounds(files, metadata))


def may_be_true(predicate: Predicate, source: BoundsSource) -> Mask:
    """For each file, whether the predicate may be true for a row of it."""
    return _may(without_not(predicate), source)


def known(mask: pa.Array | pa.Scalar) -> Mask:
    """A mask with null as false."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _may(node: Predicate, source: BoundsSource) -> Mask:  # noqa: C901, PLR0911 - one per node
    always = np.ones(source.count, np.bool_)
    match node:
        case And(left, right):
            return _may(left, source) & _may(right, source)
        case Or(left, right):
            return _may(left, source) | _may(right, source)
        case Constant(value):
            return always if value else ~always
        case In(Column() as column, values):
            found = ~always
            for literal in values:
                found |= _may(Comparison("=", column, literal), source)
            return found
        case Not(In(Column() as column, values)):
            for literal in values:
                always &= _may(Comparison("!=", column, literal), source)
            return always
        case IsNull(Column(path)):
            bounds = source.bounds(path)
            return always if bounds is None else ~bounds.no_null
        case Not(IsNull(Column(path))):
            bounds = source.bounds(path)
            return always if bounds is None else ~bounds.all_null
        case Comparison(operator, Column(path), Literal(value)) if operator in _TESTS:
            if not value.is_valid:
                return ~always
            bounds = source.bounds(path)
            return always if bounds is None else _may_compare(operator, bounds, value)
        case _:
            return always


def _may_compare(operator: str, bounds: Bounds, value: pa.Scalar) -> Mask:
    if is_float(bounds.low.type) and not _safe_for_nan(operator, value):
        return ~bounds.all_null
    impossible = [
        known(compare(test, getattr(bounds, side), value)) for side, test in _TESTS[operator]
    ]
    either = np.zeros(len(bounds.low), np.bool_)
    if operator == "!=":
        either = impossible[0] & impossible[1]
    else:
        for mask in impossible:
            either |= mask
    return ~either & ~bounds.all_null


# What proves that no value fits: any of these, or all of them for "!=".
_TESTS: dict[str, tuple[tuple[str, str], ...]] = {
    "=": (("low", ">"), ("high", "<")),
    "<": (("low", ">="),),
    "<=": (("low", ">"),),
    ">": (("high", "<="),),
    ">=": (("high", "<"),),
    "!=": (("low", "="), ("high", "=")),
}


def _safe_for_nan(operator: str, value: pa.Scalar) -> bool:
    """Whether a NaN that bounds don't show can't fit: for Spark it is above every number."""
    number = value.as_py()
    return operator in ("=", "<", "<=") and number == number  # noqa: PLR0124 - false for NaN


class LogBounds:
    """Bounds from the log: partition values and the statistics of `add` actions."""

    def __init__(self, files: pa.Table, metadata: Metadata) -> None:
        self._files, self._metadata = files, metadata
        self._cache: dict[tuple[str, ...], Bounds | None] = {}

    @property
    def count(self) -> int:
        """How many files there are."""
        return int(self._files.num_rows)

    def bounds(self, path: tuple[str, ...]) -> Bounds | None:
        """Bounds of a column, by the names that users see."""
        if path not in self._cache:
            self._cache[path] = self._find(path)
        return self._cache[path]

    def _find(self, path: tuple[str, ...]) -> Bounds | None:
        found = field_of(self._metadata.schema, path)
        if found is None or not isinstance(found[1][-1].type, Primitive):
            return None
        fields = found[1]
        kind = found[1][-1].type
        if text_type_at(fields).startswith("char("):
            return None  # rows are padded when they are read, and what is known of them may not be
        if path[0] in self._metadata.partition_columns:
            return self._partition(fields[0].physical_name, kind)
        physical = [item.physical_name for item in fields]
        return self._statistics(physical, kind)

    def _partition(self, name: str, kind: Primitive) -> Bounds:
        arrow = arrow_type(kind)
        texts = self._files[partition_column(name)]
        values = typed(texts, lambda text: partition_scalar(text, kind.name, arrow), arrow)
        rows = pa.array(np.ones(len(values), np.int64))
        return Bounds(values, values, pc.cast(pc.is_null(values), pa.int64()), rows)

    def _statistics(self, physical: list[str], kind: Primitive) -> Bounds:
        arrow = arrow_type(kind)
        bound = pa.string() if pa.types.is_temporal(arrow) else arrow
        rows, nulls, low, high = stats_columns(
            self._files,
            [
                (("numRecords",), pa.int64()),
                (("nullCount", *physical), pa.int64()),
                (("minValues", *physical), bound),
                (("maxValues", *physical), bound),
            ],
        )
        if kind.name in ("binary", "boolean", "variant", "void"):
            low = high = pa.nulls(self.count, arrow)
        elif pa.types.is_temporal(arrow):
            low, high = (
                typed(texts, lambda text: _moment(text, kind.name, arrow), arrow)
                for texts in (low, high)
            )
        return Bounds(low, _widen(high), nulls, rows)


def typed(
    texts: pa.Array | pa.ChunkedArray, parse: Callable[[str | None], pa.Scalar], kind: pa.DataType
) -> pa.Array:
    """Parse texts, each distinct one once."""
    encoded = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    encoded = encoded.dictionary_encode()
    if len(encoded.dictionary) == 0:
        return pa.nulls(len(encoded), kind)
    values = pa.array([parse(text) for text in encoded.dictionary.to_pylist()], kind)
    return values.take(encoded.indices)


def _moment(text: str | None, name: str, arrow: pa.DataType) -> pa.Scalar:
    if text is None:
        return pa.scalar(None, arrow)
    if name == "date":
        return partition_scalar(text, name, arrow)
    micros = parse_timestamp(text, zoned=name == "timestamp")
    return pa.scalar(micros, pa.int64()).cast(arrow)


def _widen(high: pa.Array) -> pa.Array:
    """Upper bounds with what may have been cut off added again."""
    kind = high.type
    if pa.types.is_timestamp(kind):
        return pc.add(high.cast(pa.int64()), _TIME_STEP).cast(kind)
    if pa.types.is_string(kind):
        longer = pc.binary_join_element_wise(high, _LAST_CHARACTER, _LAST_CHARACTER, "")
        return pc.if_else(pc.greater_equal(pc.utf8_length(high), _STRING_PREFIX), longer, high)
    return high


class RowBounds:
    """Bounds of one row group, by column name."""

    count = 1

    def __init__(self, columns: dict[str, Bounds]) -> None:
        self._columns = columns

    def bounds(self, path: tuple[str, ...]) -> Bounds | None:
        """Bounds of a top-level column."""
        return self._columns.get(path[0]) if len(path) == 1 else None


def single(low: Any, high: Any, nulls: int | None, rows: int, kind: pa.DataType) -> Bounds:
    """Bounds of one row group."""
    return Bounds(
        pa.array([low], kind),
        pa.array([high], kind),
        pa.array([nulls], pa.int64()),
        pa.array([rows], pa.int64()),
    )
