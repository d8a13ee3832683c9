"""Make up Delta tables: schemas, values and layouts of files."""

from __future__ import annotations

import datetime as dt
import json
import string
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tests.delta.generated_tables import DataFile, Kind, Made, Member

# Microseconds of the years 1 to 9999: what Spark's Python side can show.
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def _integers(bits: int) -> st.SearchStrategy[int]:
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    return st.sampled_from(edges) | st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return st.integers(-top, top).map(lambda number: Decimal(f"{number}e-{scale}"))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["a" * 40, "é" * 31 + "\U0001f600", " lead", "trail ", "%2F", "__HIVE_DEFAULT_PARTITION__x"]
)
_DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, float("nan"), 1e300, 5e-324])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": _integers(8),
    "short": _integers(16),
    "integer": _integers(32),
    "long": _integers(64),
    "float": st.floats(width=32),
    "double": _DOUBLES,
    "string": _TEXTS,
    "binary": st.binary(max_size=5),
    "date": st.dates(),
    "timestamp": st.integers(*_MICROS),
    "timestamp_ntz": st.integers(*_MICROS),
    "decimal(7,2)": _decimals(7, 2),
    "decimal(38,10)": _decimals(38, 10),
}
_KEYS = ("string", "integer", "date", "boolean")
_PARTITIONS = ("string", "integer", "long", "date", "boolean", "decimal(7,2)")
_FILTERED = ("integer", "long", "short", "date", "boolean", "string")
_PLAIN_NAMES = ["a", "B", "c_1", "d", "ü", "select", "Zz"]
_ODD_NAMES = ["a b", "c.d", "e,f;g", "{h}", "i=j", "k`l", "\U0001f600", '"m"', "n\no"]


_LEAF_KINDS = st.sampled_from(sorted(VALUES)).map(Kind)
_ALL_NAMES = _PLAIN_NAMES + _ODD_NAMES


def _kinds(names: list[str]) -> st.SearchStrategy[Kind]:
    def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        structs = st.lists(
            st.tuples(st.sampled_from(names), inner), min_size=1, max_size=3,
            unique_by=lambda pair: pair[0].lower(),
        )  # fmt: skip
        return (
            inner.map(lambda kind: Kind("array", (Member("element", kind),)))
            | st.tuples(st.sampled_from(_KEYS), inner).map(
                lambda pair: Kind("map", (Member("key", Kind(pair[0])), Member("value", pair[1])))
            )
            | structs.map(lambda pairs: Kind("struct", tuple(Member(*pair) for pair in pairs)))
        )

    return st.recursive(_LEAF_KINDS, nested, max_leaves=4)


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Values of a type, nulls among them; a map is a list of pairs."""
    parts = [values_of(member.kind) for member in kind.members]
    if kind.name == "array":
        return st.none() | st.lists(parts[0], max_size=3)
    if kind.name == "map":
        keys = VALUES[kind.members[0].kind.name]
        pairs = st.lists(st.tuples(keys, parts[1]), max_size=2, unique_by=lambda pair: pair[0])
        return st.none() | pairs
    if kind.name == "struct":
        names = [member.name for member in kind.members]
        return st.none() | st.fixed_dictionaries(dict(zip(names, parts, strict=True)))
    return st.none() | VALUES[kind.name]


def _numbered(members: list[tuple[str, Kind]]) -> tuple[Member, ...]:
    numbers = iter(range(1, 1000))

    def number(member: Member) -> Member:
        mine = next(numbers)
        return Member(
            member.name, Kind(member.kind.name, tuple(map(number, member.kind.members))), mine
        )

    return tuple(number(Member(*pair)) for pair in members)


def _droppable(members: tuple[Member, ...], *, top: bool = True) -> Iterator[int]:
    """Numbers of columns and fields that a file may lack; each struct keeps its first field."""
    for place, member in enumerate(members):
        if top or place:
            yield member.number
        for inner in member.kind.members:
            if inner.kind.name == "struct":
                yield from _droppable(inner.kind.members, top=False)
        if member.kind.name == "struct":
            yield from _droppable(member.kind.members, top=False)


@st.composite
def _files(draw: st.DrawFn, columns: tuple[Member, ...], partitions: tuple[str, ...]) -> DataFile:
    shapes = {member.name: values_of(member.kind) for member in columns}
    plain = {name: shapes[name] for name in shapes if name not in partitions}
    least = draw(st.sampled_from([3, 5, 0]))
    rows = draw(st.lists(st.fixed_dictionaries(plain), min_size=least, max_size=8))
    partition = {name: draw(shapes[name].filter(lambda value: value != "")) for name in partitions}
    numbers = [
        number
        for member in columns
        if member.name not in partitions
        for number in _droppable((member,))
    ]
    missing = draw(st.sets(st.sampled_from(numbers), max_size=2)) if numbers else set()
    deleted = draw(st.sets(st.sampled_from(range(len(rows))))) if rows else set()
    options = {
        "row_group_size": draw(st.sampled_from([2, 3, 100])),
        "compression": draw(st.sampled_from(["snappy", "zstd", "gzip", "none"])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "store_schema": draw(st.booleans()),
    }
    return DataFile(
        tuple(rows), partition, frozenset(missing), frozenset(deleted),
        draw(st.booleans()), draw(st.booleans()), options,
    )  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Made:
    """Tables of one to five columns in up to four files."""
    mode = draw(st.sampled_from(["none", "name", "id"]))
    names = _PLAIN_NAMES if mode == "none" else _ALL_NAMES
    count = draw(st.integers(2, 6))
    chosen = draw(st.permutations(names))[:count]
    kinds = [draw(_LEAF_KINDS if place % 2 else _kinds(names)) for place in range(count)]
    columns = _numbered(list(zip(chosen, kinds, strict=True)))
    possible = [member.name for member in columns if member.kind.name in _PARTITIONS]
    most = min(len(possible), len(columns) - 1, draw(st.sampled_from([0, 1, 2])))
    partitions = possible[:most]
    files = draw(
        st.lists(
            _files(columns, tuple(partitions)),
            min_size=draw(st.sampled_from([0, 2, 3])),
            max_size=4,
        )
    )
    removed = draw(st.sets(st.sampled_from(range(len(files))), max_size=1)) if files else set()
    condition = draw(_conditions(columns, files, partitions))
    return Made(columns, tuple(partitions), mode, tuple(files), frozenset(removed), condition)


def _conditions(
    columns: tuple[Member, ...], files: list[DataFile], partitions: list[str]
) -> st.SearchStrategy[str | None]:
    """Filters in SQL that compare a column with a value that it has."""
    found = []
    for member in columns:
        if member.kind.name not in _FILTERED:
            continue
        name = "`" + member.name.replace("`", "``") + "`"
        found.append(f"{name} IS NULL")
        for data in files:
            held = data.partition if member.name in partitions else (data.rows or ({},))[0]
            text = _literal(held.get(member.name))
            if text is not None:
                found += [f"{name} {sign} {text}" for sign in ("=", "<", ">=", "!=", "<=>")]
                found.append(f"NOT ({name} IN ({text}) OR {name} > {text})")
    return st.sampled_from(found) if found else st.none()


def _literal(value: Any) -> str | None:
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        plain = set(value) <= set(string.ascii_letters + string.digits + " %_")
        return f"'{value}'" if plain else None
    return None if value is None else json.dumps(value)
