"""What every part of the ledger stands on: the database, the watch over leases, and row locks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from headrace.exceptions import LeaseLostError, RunNotFoundError
from headrace.ledger import schema
from headrace.ledger.database import Database
from headrace.ledger.leases import LeaseWatch
from headrace.ledger.rows import (
    attempt_record,
    attempt_title,
    beat_end,
    beat_of,
    repair_title,
)

RUN, REPAIR, ATTEMPT = schema.run, schema.repair, schema.attempt
# As text, not as a parameter: only then do the partial indexes apply on SQLite.
RUNNING_REPAIR = sa.text("repair.state = 'running'")
RUNNING_ATTEMPT = sa.text("attempt.state = 'running'")


class LedgerBase:
    """Base of the ledger's parts.

    Args:
        database: Where the ledger lives.
        watch: Tells live leases from dead ones.
    """

    def __init__(self, database: Database, watch: LeaseWatch) -> None:
        self.database = database
        self.watch = watch

    def _lock_run(self, connection: sa.Connection, run_id: str) -> sa.Row[Any]:
        """Lock the run's row, so that whatever changes the run happens one after the other.

        On SQLite the whole ledger is locked already.
        """
        row = connection.execute(
            sa.select(RUN).where(RUN.c.id == run_id).with_for_update()
        ).one_or_none()
        if row is None:
            raise RunNotFoundError(run=run_id, near=_latest_ids(connection), several=False)
        return row

    def _last_repair(self, connection: sa.Connection, run_id: str) -> sa.Row[Any]:
        return connection.execute(
            sa.select(REPAIR)
            .where(REPAIR.c.run_id == run_id)
            .order_by(REPAIR.c.seq.desc())
            .limit(1)
        ).one()

    def _check_driver(
        self, connection: sa.Connection, run_id: str, seq: int, token: str
    ) -> sa.Row[Any]:
        """The repair's row, if the one who shows `token` drives it."""
        row = connection.execute(
            sa.select(REPAIR).where(REPAIR.c.run_id == run_id, REPAIR.c.seq == seq)
        ).one_or_none()
        if row is None or row.state != "running" or row.token != token:
            holder = f"repair {seq} of run {run_id}" if seq else f"run {run_id}"
            raise LeaseLostError(holder=holder, state=row.state if row else "unknown")
        return row

    def live_leases(
        self, connection: sa.Connection, run_id: str, now: float | None = None
    ) -> list[tuple[str, float]]:
        """Titles of the run's live leases, and the seconds until each is over without a beat."""
        repairs = connection.execute(
            sa.select(REPAIR).where(REPAIR.c.run_id == run_id, RUNNING_REPAIR)
        )
        attempts = connection.execute(
            sa.select(ATTEMPT).where(ATTEMPT.c.run_id == run_id, RUNNING_ATTEMPT)
        )
        found = [
            (f"{repair_title(row)} (pid {row.pid} on {row.host})", beat_of("repair", row))
            for row in repairs
        ]
        found += [
            (f"{attempt_title(row)} (pid {row.pid} on {row.host})", beat_of("attempt", row))
            for row in attempts
        ]
        timed = [(title, self.watch.left_s(beat, now)) for title, beat in found]
        return [(title, left) for title, left in timed if left > 0]

    def live_run_ids(self, connection: sa.Connection) -> set[str]:
        """Runs of which anything is alive."""
        found: set[str] = set()
        for table, running in ((REPAIR, RUNNING_REPAIR), (ATTEMPT, RUNNING_ATTEMPT)):
            for row in connection.execute(sa.select(table).where(running)):
                if self.watch.is_live(beat_of(table.name, row)):
                    found.add(row.run_id)
        return found

    def _crash(self, connection: sa.Connection, table: sa.Table, row: sa.Row[Any]) -> bool:
        """Mark what held the dead lease as crashed, unless a heartbeat came in between."""
        values: dict[str, Any] = {"state": "crashed", "ended_at": beat_end(row), "token": None}
        if table is ATTEMPT:
            values["error"] = {
                "type": "TaskCrashedError",
                "message": f"No heartbeat for {row.lease_s:g} s from process {row.pid} on "
                f"{row.host}: it was killed, stopped, or its machine is gone.",
                "traceback": "",
                "retryable": True,
            }
        done = connection.execute(
            sa.update(table)
            .where(
                table.c.id == row.id,
                table.c.state == "running",
                table.c.token == row.token,
                table.c.beat == row.beat,
            )
            .values(**values)
        )
        self.watch.forget((table.name, row.id))
        return bool(done.rowcount)

    def _lock_name(self, connection: sa.Connection, name: str) -> None:
        """Let nobody else count and then take under this name until the transaction ends.

        On SQLite the whole ledger is locked already.
        """
        if not self.database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(name))))

    def _live_runs(self, connection: sa.Connection, pipeline: str) -> list[str]:
        """Ids of the pipeline's runs that a live process drives."""
        rows = connection.execute(
            sa.select(REPAIR)
            .join(RUN, RUN.c.id == REPAIR.c.run_id)
            .where(RUN.c.pipeline == pipeline, RUNNING_REPAIR)
            .order_by(REPAIR.c.id)
        ).all()
        return [row.run_id for row in rows if self.watch.is_live(beat_of("repair", row))]

    def _taken(self, connection: sa.Connection, now: float | None = None) -> dict[str, int]:
        """How much of each limit the live attempts hold."""
        held: Counter[str] = Counter()
        for row in connection.execute(sa.select(ATTEMPT).where(RUNNING_ATTEMPT)):
            if self.watch.is_live(beat_of("attempt", row), now):
                held.update(attempt_record(row).limits)
        return dict(held)


def set_run(connection: sa.Connection, run_id: str, **values: Any) -> None:
    """Change columns of a run."""
    connection.execute(sa.update(RUN).where(RUN.c.id == run_id).values(**values))


def _latest_ids(connection: sa.Connection, limit: int = 5) -> list[str]:
    return list(
        connection.execute(sa.select(RUN.c.id).order_by(RUN.c.number.desc()).limit(limit)).scalars()
    )
