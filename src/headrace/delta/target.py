"""Which table a write means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.context import TaskContext
from headrace.delta.location import normal_uri
from headrace.tables import TableRef


@dataclass(frozen=True)
class Target:
    """A table to write to.

    Attributes:
        uri: Absolute path or `s3://` address of its root.
        name: Its short name in the lake, or None for a path or an address.
    """

    uri: str
    name: str | None

    @property
    def label(self) -> str:
        """What error texts call it."""
        return self.name or self.uri


def resolve_target(table: TableRef | str | Path, context: TaskContext) -> Target:
    """The table that a user names; of a reference the table is meant, not the version."""
    if isinstance(table, TableRef):
        return Target(table.uri, table.name)
    text = str(table)
    is_name = "://" not in text and not Path(text).is_absolute()
    return Target(normal_uri(context.table_uri(text)), text if is_name else None)


def name_list(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Column names, of which a single one may be given as a text."""
    return (names,) if isinstance(names, str) else tuple(names or ())
