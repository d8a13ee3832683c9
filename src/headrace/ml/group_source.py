"""The table whose groups are trained: its version, its columns, and how its groups are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.delta.binding import bind
from headrace.delta.pinning import pin
from headrace.delta.reading import plain_spec, resolve_columns
from headrace.delta.schema import Field, Primitive
from headrace.delta.snapshot import Snapshot
from headrace.delta.sql_filters import parse_filter
from headrace.delta.types import arrow_type
from headrace.exceptions import MlRequestError
from headrace.ml.group_desk import Job
from headrace.ml.group_plan import Group
from headrace.ml.wire import Address
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pyarrow as pa

# Types whose values are equal on both engines, in Python and in MLflow's schema.
_KEY_TYPES: Final = ("string", "long", "integer", "short", "byte", "boolean", "date")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A pinned table and the columns that matter.

    Attributes:
        snapshot: The version.
        ref: Its reference.
        by: Columns whose values make a group.
        features: Columns that a model predicts from.
        columns: All that are read: `by`, features and target.
        filter: Rows that count, in SQL; None for all.
    """

    snapshot: Snapshot
    ref: TableRef
    by: tuple[str, ...]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    filter: str | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that are read, with their types."""
        return tuple(self.field(name) for name in self.columns)

    @property
    def key_kinds(self) -> list[pa.DataType]:
        """Arrow types of the `by` columns."""
        return [arrow_type(self.field(name).type) for name in self.by]

    def field(self, name: str) -> Field:
        """One column."""
        found = self.snapshot.schema.find(name)
        assert found is not None  # noqa: S101 - names come from the schema
        return found


@dataclass(frozen=True)
class Counted:
    """What a count found.

    Attributes:
        groups: In the order of their keys.
        nulls: Nulls of each column.
    """

    groups: list[Group]
    nulls: Mapping[str, int]


class Groups(Protocol):
    """The groups of a table on one engine.

    Attributes:
        host: Where its workers reach the driver.
        scheme: How fingerprints are made; those of two schemes can't be compared.
    """

    host: str
    scheme: str

    def count(self) -> Counted:
        """Rows, bytes and fingerprint of every group, and nulls of every column."""

    def place(self, groups: Sequence[Group], bins: Sequence[Sequence[int]]) -> None:
        """Say which group is trained in which bin, before anything is trained."""

    def train(self, address: Address, numbers: Sequence[int]) -> Job:
        """Train groups, each with all its rows as one frame."""

    def train_batches(
        self, address: Address, numbers: Sequence[int], samples: dict[int, int] | None, seed: int
    ) -> Job:
        """Train groups of which a worker never holds all rows."""

    def close(self) -> None:
        """Give back what is held."""


def open_source(
    table: Any,
    *,
    by: Sequence[str],
    features: Sequence[str] | None,
    target: Sequence[str],
    filter: str | None,  # noqa: A002 - the word of the readers
) -> Source:
    """Pin a table and check its columns.

    Raises:
        MlRequestError: There is no `by`, it has a type that can't be a key, or columns overlap.
        ColumnNotFoundError: The table has no such column.
        FilterError: The filter does not fit the table.
    """
    snapshot, ref = pin(table)
    spec = plain_spec(snapshot)
    keys, labels = resolve_columns(spec, by), resolve_columns(spec, target)
    if features is None:
        inputs = tuple(name for name in spec.schema.names if name not in {*keys, *labels})
    else:
        inputs = resolve_columns(spec, features)
    _check_columns(snapshot, keys, inputs, labels)
    if filter is not None:
        bind(parse_filter(filter), snapshot.schema, table=snapshot.uri, text=filter)
    return Source(
        snapshot=snapshot,
        ref=ref,
        by=keys,
        features=inputs,
        columns=tuple(dict.fromkeys([*keys, *inputs, *labels])),
        filter=filter,
    )


def _check_columns(
    snapshot: Snapshot, by: Sequence[str], features: Sequence[str], target: Sequence[str]
) -> None:
    if not by or len(set(by)) < len(by):
        raise MlRequestError(
            problem="ml.train_per_group needs the columns whose values make a group, each once.",
            found=f"by={list(by)}",
            fix='by=["carrier"]',
        )
    both = sorted((set(by) & {*features, *target}) | (set(features) & set(target)))
    if both:
        raise MlRequestError(
            problem=f"Column {both[0]!r} has two parts to play.",
            found="A column is one of by, features, target; within a group by is constant.",
            fix=f"leave {both[0]!r} out of all but one",
        )
    for name in by:
        found = snapshot.schema.find(name)
        kind = found.type if found is not None else None
        text = kind.name if isinstance(kind, Primitive) else type(kind).__name__.lower()
        if text.partition("(")[0] not in (*_KEY_TYPES, "char", "varchar"):
            raise MlRequestError(
                problem=f"Column {name!r} is a {text}, by which no model is chosen.",
                found=f"Known: {', '.join(_KEY_TYPES)}.",
                fix="add a column with a text, a date or a whole number for each group",
            )


def batch_plans(
    groups: Mapping[int, Group],
    numbers: Sequence[int],
    samples: Mapping[int, int] | None,
    seed: int,
) -> dict[int, tuple[int, int | None, tuple[Any, ...]]]:
    """By group what a worker has to know to take its rows in batches.

    Returns:
        Its rows, how many of them to keep (None for all), and the seed of the choice.
    """
    return {
        number: (
            groups[number].rows,
            None if samples is None else samples[number],
            (seed, groups[number].key),
        )
        for number in numbers
    }


def group_list(measured: Mapping[tuple[Any, ...], tuple[Any, Any, Any]]) -> list[Group]:
    """Groups from rows, bytes and hash by key, numbered in the order of their keys."""
    ordered = sorted(measured, key=_order)
    return [
        Group(
            number=number,
            key=key,
            rows=int(measured[key][0]),
            bytes=int(measured[key][1]),
            fingerprint=f"{measured[key][0]}-{measured[key][2]}",
        )
        for number, key in enumerate(ordered)
    ]


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Nulls first; the values of a column have one type."""
    return tuple((value is not None, 0 if value is None else value) for value in key)
