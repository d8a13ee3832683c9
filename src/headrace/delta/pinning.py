"""From what a user calls a table to one pinned version of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from headrace.context import current_context
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.exceptions import ReadRequestError
from headrace.tables import TableRef


def pin(
    table: TableRef | str | Path,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
) -> tuple[Snapshot, TableRef]:
    """Resolve a table to one version, with the storage of the current task.

    Args:
        table: A `TableRef` (its version is taken), a name in the lake, a path or an address.
        version: The version; None for the newest.
        timestamp: The version that was current at this time.

    Raises:
        ReadRequestError: Arguments contradict each other.
        DataError: The table or the version does not exist, or can't be read right.
    """
    context = current_context()
    if isinstance(table, TableRef):
        if timestamp is not None or version not in (None, table.version):
            raise ReadRequestError(
                problem=f"{table} is a pinned version already.",
                found=f"version={version} and timestamp={timestamp} were given too.",
                fix="give the table's name instead of the reference",
            )
        return load_snapshot(table.uri, version=table.version, storage=context.storage), table
    if version is not None and timestamp is not None:
        raise ReadRequestError(
            problem="A read can't have both version= and timestamp=.",
            found=f"version={version} and timestamp={timestamp} were given.",
            fix="leave one out",
        )
    text = str(table)
    snapshot = load_snapshot(
        context.table_uri(text), version=version, timestamp=timestamp, storage=context.storage
    )
    is_name = "://" not in text and not Path(text).is_absolute()
    return snapshot, snapshot.ref(text if is_name else None)
