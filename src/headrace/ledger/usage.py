"""What attempts used, row by row, and which rows the lake's usage table has."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.base import ATTEMPT, RUN, LedgerBase
from headrace.ledger.records import ACTIVE, Record
from headrace.ledger.rows import utc_now

EXPORT = schema.usage_export

_MOST = 2000
_KEPT = (
    *("cpu_s", "peak_memory_mib", "read_bytes", "written_bytes", "spilled_bytes"),
    *("spark_tasks", "ray_tasks", "cores", "memory_mib_reserved"),
)
_HOUR_S = 3600.0


class UsageRow(Record):
    """What one attempt took and cost.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: CPU seconds of its whole process tree.
        peak_memory_mib: The most memory that the tree had.
        read_bytes: What its processes read: files, pipes and sockets.
        written_bytes: What they wrote.
        spark_tasks: Tasks that Spark ran for it, or None.
        ray_tasks: Tasks that Ray ran for it, or None.
        cores: What its profile reserved.
        memory_mib: See `cores`.
        price_per_hour: The profile's price when it started.
        cost: Hours times price.
    """

    attempt_id: int
    run_id: str
    pipeline: str
    task: str
    key: str
    number: int
    state: str
    profile: str
    engine: str
    environment: str
    user: str
    tags: tuple[str, ...]
    started_at: datetime
    ended_at: datetime
    wall_s: float
    cpu_s: float | None = None
    peak_memory_mib: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    spilled_bytes: int | None = None
    spark_tasks: int | None = None
    ray_tasks: int | None = None
    cores: int | None = None
    memory_mib: int | None = None
    price_per_hour: float = 0.0
    cost: float = 0.0


class UsageStore(LedgerBase):
    """The part of the ledger that tells what was used."""

    def usage_rows(
        self, *, since: datetime | None = None, run_id: str | None = None
    ) -> list[UsageRow]:
        """What the attempts that have ended used, oldest first; reused ones used nothing."""
        wanted = [ATTEMPT.c.started_at >= since] if since else []
        wanted += [ATTEMPT.c.run_id == run_id] if run_id else []
        return self.database.read(lambda c: _rows(c, *wanted))

    def claim_usage(self) -> tuple[str, list[UsageRow]] | None:
        """Rows that the lake's table lacks, and the name of their batch, or None.

        A batch keeps its name until it is written, so that a write that is repeated after a crash
        is known as the same.
        """
        fresh = secrets.token_hex(8)

        def work(connection: sa.Connection) -> tuple[str, list[UsageRow]] | None:
            self._lock_name(connection, "usage")
            batch = connection.execute(
                sa.select(EXPORT.c.batch).where(EXPORT.c.written_at.is_(None)).limit(1)
            ).scalar()
            if batch is None:
                ids = list(connection.execute(_lacking()).scalars())
                if not ids:
                    return None
                rows = [{"attempt_id": attempt, "batch": fresh} for attempt in ids]
                connection.execute(sa.insert(EXPORT), rows)
                batch = fresh
            inside = sa.select(EXPORT.c.attempt_id).where(EXPORT.c.batch == batch)
            return batch, _rows(connection, ATTEMPT.c.id.in_(inside))

        if not self.database.read(_has_more):
            return None
        return self.database.write(work)

    def finish_usage(self, batch: str) -> None:
        """Note that the lake's table has a batch."""
        self.database.write(
            lambda c: c.execute(
                sa.update(EXPORT).where(EXPORT.c.batch == batch).values(written_at=utc_now())
            )
        )


def _lacking() -> sa.Select[Any]:
    known = sa.select(EXPORT.c.attempt_id).where(EXPORT.c.attempt_id == ATTEMPT.c.id)
    return (
        sa.select(ATTEMPT.c.id)
        .where(*_ended(), ~known.exists())
        .order_by(ATTEMPT.c.id)
        .limit(_MOST)
    )


def _has_more(connection: sa.Connection) -> bool:
    waiting = sa.select(EXPORT.c.batch).where(EXPORT.c.written_at.is_(None)).limit(1)
    return (
        connection.execute(waiting).scalar() is not None
        or connection.execute(_lacking().limit(1)).scalar() is not None
    )


def _ended() -> list[Any]:
    return [
        ATTEMPT.c.state.not_in(sorted(ACTIVE)),
        ATTEMPT.c.started_at.is_not(None),
        ATTEMPT.c.ended_at.is_not(None),
        ATTEMPT.c.reused_from.is_(None),
    ]


def _rows(connection: sa.Connection, *wanted: Any) -> list[UsageRow]:
    query = (
        sa.select(ATTEMPT, RUN.c.environment, RUN.c.user, RUN.c.tags)
        .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
        .where(*_ended(), *wanted)
        .order_by(ATTEMPT.c.id)
    )
    return [_row(row) for row in connection.execute(query)]


def _row(row: sa.Row[Any]) -> UsageRow:
    used = row.usage or {}
    wall_s = used.get("wall_s") or (row.ended_at - row.started_at).total_seconds()
    price = float(used.get("price_per_hour") or 0.0)
    found = {name.removesuffix("_reserved"): used.get(name) for name in _KEPT}
    return UsageRow(
        attempt_id=row.id,
        run_id=row.run_id,
        pipeline=row.pipeline,
        task=row.task,
        key=row.key,
        number=row.number,
        state=row.state,
        profile=row.profile or "",
        engine=row.engine or "",
        environment=row.environment,
        user=row.user,
        tags=tuple(f"{k}={v}" if v else k for k, v in sorted(row.tags.items())),
        started_at=row.started_at,
        ended_at=row.ended_at,
        wall_s=max(0.0, wall_s),
        price_per_hour=price,
        cost=max(0.0, wall_s) / _HOUR_S * price,
        **found,
    )
