"""Statistics of one data file, as the protocol and Spark's data skipping want them.

A bound may be wider than the values, never narrower: texts are cut at 32 characters, times are
rounded outwards to the millisecond, and where no safe bound can be written there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.schema import DeltaType, Field, Primitive, Struct

_TEXT_LIMIT = 32
_HIGHEST = "\U0010ffff"
_DEFAULT_COLUMNS = 32
_MILLISECOND = timedelta(milliseconds=1)
_BOUNDED = ("byte", "short", "integer", "long", "float", "double", "date", "string")
_BOUNDED_PREFIXES = ("decimal", "timestamp")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A column, or a field of a struct, that gets statistics.

    Attributes:
        path: Its names from the table down, as users see them.
        physical: The same names inside the log.
        kind: Its Delta type.
    """

    path: Path
    physical: Path
    kind: DeltaType

    @property
    def bounded(self) -> bool:
        """Whether it has a minimum and a maximum."""
        name = self.kind.name if isinstance(self.kind, Primitive) else ""
        return name in _BOUNDED or name.startswith(_BOUNDED_PREFIXES)


def plan_leaves(
    schema: Struct, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> list[Leaf]:
    """Which columns get statistics: the first 32 leaves, or what the table's properties say."""
    partitions = {name.lower() for name in partition_columns}
    fields = [child for child in schema.fields if child.name.lower() not in partitions]
    leaves = [leaf for child in fields for leaf in _leaves(child, (), ())]
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named:
        wanted = [tuple(_names(item)) for item in _split(named)]
        return [leaf for leaf in leaves if any(leaf.path[: len(w)] == w for w in wanted)]
    count = int(configuration.get("delta.dataSkippingNumIndexedCols", _DEFAULT_COLUMNS))
    return leaves if count < 0 else leaves[:count]


def _leaves(child: Field, path: Path, physical: Path) -> Iterator[Leaf]:
    path, physical = (*path, child.name), (*physical, child.physical_name)
    if isinstance(child.type, Struct):
        for inner in child.type.fields:
            yield from _leaves(inner, path, physical)
    else:
        yield Leaf(path, physical, child.type)


def _split(text: str) -> list[str]:
    """Split at commas that are not inside backticks."""
    parts, quoted, start = [], False, 0
    for index, char in enumerate(text):
        if char == "`":
            quoted = not quoted
        elif char == "," and not quoted:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _names(text: str) -> list[str]:
    """Split a dotted name at dots that are not inside backticks."""
    parts, quoted = [""], False
    for char in text:
        if char == "`":
            quoted = not quoted
        elif char == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@dataclass
class FileStats:
    """Collects the statistics of a file while its rows are written.

    Attributes:
        leaves: What to look at.
        rows: Rows so far.
    """

    leaves: Sequence[Leaf]
    rows: int = 0
    _nulls: dict[Path, int] = field(default_factory=dict)
    _bounds: dict[Path, tuple[Any, Any]] = field(default_factory=dict)
    _unbounded: set[Path] = field(default_factory=set)

    def add(self, data: pa.Table) -> None:
        """Take in rows that go into the file."""
        self.rows += data.num_rows
        for leaf in self.leaves:
            for chunk in _column(data, leaf.path).chunks:
                self._add(leaf, chunk)

    def _add(self, leaf: Leaf, values: pa.Array) -> None:
        path = leaf.physical
        self._nulls[path] = self._nulls.get(path, 0) + values.null_count
        if not leaf.bounded or path in self._unbounded or values.null_count == len(values):
            return
        # To Spark NaN is above every number, to others it is nothing: no bound suits both.
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self._unbounded.add(path)
            return
        found = pc.min_max(_countable(values))
        low, high = found["min"].as_py(), found["max"].as_py()
        before = self._bounds.get(path)
        if before is not None:
            low, high = min(low, before[0]), max(high, before[1])
        self._bounds[path] = (low, high)

    def to_json(self) -> str:
        """The `stats` text of the file's `add` action."""
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for leaf in self.leaves:
            _put(nulls, leaf.physical, self._nulls.get(leaf.physical, 0))
            if leaf.physical in self._unbounded or leaf.physical not in self._bounds:
                continue
            low, high = self._bounds[leaf.physical]
            _put(lows, leaf.physical, lower_bound(low, leaf.kind))
            _put(highs, leaf.physical, upper_bound(high, leaf.kind))
        parts = {"numRecords": self.rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
        return dump(parts)


def _column(data: pa.Table, path: Path) -> pa.ChunkedArray:
    column = data.column(path[0])
    for name in path[1:]:
        # struct_field passes a null parent on: such a row counts as null.
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def _countable(values: pa.Array) -> pa.Array:
    """Dates and times as numbers: Python's own don't reach as far as Arrow's."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values


def lower_bound(value: Any, kind: DeltaType) -> Any:
    """A JSON value that is not above `value`, or None when there is no safe one."""
    name = kind.name if isinstance(kind, Primitive) else ""
    if isinstance(value, str):
        return value[:_TEXT_LIMIT]
    if name == "date":
        return _date(value)
    if name.startswith("timestamp"):
        return _time(value // 1000, zoned=name == "timestamp")
    return _finite(value)


def upper_bound(value: Any, kind: DeltaType) -> Any:
    """A JSON value that is not below `value`, or None when there is no safe one."""
    name = kind.name if isinstance(kind, Primitive) else ""
    if isinstance(value, str):
        return _text_above(value)
    if name == "date":
        return _date(value)
    if name.startswith("timestamp"):
        return _time(-(-value // 1000), zoned=name == "timestamp")
    return _finite(value)


def _text_above(value: str) -> str:
    """The text's first characters and the highest one there is, as Spark cuts them."""
    end = _TEXT_LIMIT
    if len(value) <= end:
        return value
    while end < len(value) and value[end] == _HIGHEST:
        end += 1
    return value if end == len(value) else value[:end] + _HIGHEST


def _date(days: int) -> str | None:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _time(milliseconds: int, *, zoned: bool) -> str | None:
    try:
        moment = datetime(1970, 1, 1) + milliseconds * _MILLISECOND  # noqa: DTZ001 - zone below
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + ("Z" if zoned else "")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _put(target: dict[str, Any], path: Path, value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def dump(value: Any) -> str:
    """JSON with every digit of a decimal, which `json` would turn into a float."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
