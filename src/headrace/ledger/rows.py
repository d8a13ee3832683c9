"""Between rows of the database and records."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.context import Lineage
from headrace.ledger.leases import Beat, LeaseWatch, own_host
from headrace.ledger.records import (
    AttemptRecord,
    CodeVersion,
    RepairRecord,
    RunRecord,
    node_name,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

_HIDDEN = {"code_commit", "code_dirty", "beat", "beat_clock", "beat_at"}


def utc_now() -> datetime:
    """The wall clock, for people; nothing is decided by it."""
    return datetime.now(UTC)


def run_record(row: sa.Row[Any]) -> RunRecord:
    """A row of `run`."""
    return RunRecord(code=_code(row), **_fields(row))


def repair_record(row: sa.Row[Any]) -> RepairRecord:
    """A row of `repair`."""
    return RepairRecord(code=_code(row), **_fields(row))


def attempt_record(row: sa.Row[Any]) -> AttemptRecord:
    """A row of `attempt`."""
    return AttemptRecord(**_fields(row))


def _fields(row: sa.Row[Any]) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in _HIDDEN}  # noqa: SLF001


def _code(row: sa.Row[Any]) -> CodeVersion:
    return CodeVersion(commit=row.code_commit, dirty=row.code_dirty)


def code_values(code: CodeVersion) -> dict[str, Any]:
    """Columns of a code version."""
    return {"code_commit": code.commit, "code_dirty": code.dirty}


def lineage_values(uses: Iterable[Lineage]) -> list[dict[str, Any]]:
    """Table versions as JSON."""
    return [{"ref": use.ref.model_dump(mode="json"), "mode": use.mode} for use in uses]


def beat_of(kind: str, row: sa.Row[Any]) -> Beat:
    """The lease of a row of `repair` or `attempt`."""
    return Beat(
        holder=(kind, row.id),
        token=row.token if row.state == "running" else None,
        beat=row.beat,
        clock=row.beat_clock,
        at=row.beat_at,
        lease_s=row.lease_s,
    )


def beat_end(row: sa.Row[Any]) -> datetime:
    """When a holder was last heard of: a crashed attempt took no longer than that."""
    if row.lease_expires_at is None or row.started_at is None:
        return utc_now()
    started: datetime = row.started_at
    heard: datetime = row.lease_expires_at - timedelta(seconds=row.lease_s)
    # Its own clock on the wall may have been set back meanwhile.
    return max(heard, started)


def beat_values(watch: LeaseWatch, lease_s: float) -> dict[str, Any]:
    """Columns of a heartbeat at this moment."""
    return {
        "lease_s": lease_s,
        "lease_expires_at": utc_now() + timedelta(seconds=lease_s),
        "beat_clock": watch.clock.id,
        "beat_at": watch.clock.now(),
    }


def new_lease_values(watch: LeaseWatch, token: str, lease_s: float) -> dict[str, Any]:
    """Columns of a new lease, held by this process."""
    return {
        **beat_values(watch, lease_s),
        "token": token,
        "beat": 0,
        "host": own_host(),
        "pid": os.getpid(),
    }


def attempt_title(row: Any) -> str:
    """An attempt as an error text calls it."""
    return f"attempt {row.number} of {node_name(row.task, row.key)} in run {row.run_id}"


def repair_title(row: Any) -> str:
    """A repair as an error text calls it."""
    return f"repair {row.seq} of run {row.run_id}" if row.seq else f"run {row.run_id}"
