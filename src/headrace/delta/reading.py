"""Set up a read of a snapshot: columns and filter, checked against the table's schema."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.context import current_context
from headrace.delta.data_files import ReadSpec
from headrace.delta.snapshot import Snapshot
from headrace.exceptions import ColumnNotFoundError


def plain_spec(snapshot: Snapshot) -> ReadSpec:
    """A spec that reads every row and column of a version, with the current task's storage."""
    return ReadSpec(
        uri=snapshot.uri,
        version=snapshot.version,
        schema=snapshot.schema,
        columns=tuple(snapshot.schema.names),
        partition_columns=snapshot.partition_columns,
        mapping_mode=snapshot.mapping_mode,
        storage=current_context().storage.fresh(),
    )


def resolve_columns(spec: ReadSpec, columns: Sequence[str]) -> tuple[str, ...]:
    """The wanted columns in the table's own spelling.

    Raises:
        ColumnNotFoundError: The table has no such column.
    """
    found = []
    for name in columns:
        child = spec.schema.find(name)
        if child is None:
            raise ColumnNotFoundError(column=name, table=spec.uri, known=tuple(spec.schema.names))
        found.append(child.name)
    return tuple(found)
