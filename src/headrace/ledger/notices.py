"""What people are told of, each thing once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.base import REPAIR, RUN, RUNNING_REPAIR, LedgerBase
from headrace.ledger.firing_records import FiringRecord
from headrace.ledger.records import ACTIVE, RepairRecord, RunRecord
from headrace.ledger.rows import repair_record, run_record, utc_now

NOTICE, FIRING = schema.notice, schema.firing

_AGAIN = timedelta(seconds=60)


class NoticeStore(LedgerBase):
    """The part of the ledger that knows what people were told."""

    def claim_notice(self, key: str, *, kind: str, run_id: str | None = None) -> bool:
        """Whether the caller shall send a notice.

        One whose sender was killed before it had sent is given out again after a minute.
        """

        def work(connection: sa.Connection) -> bool:
            self._lock_name(connection, f"notice {key}")
            row = connection.execute(
                sa.select(NOTICE).where(NOTICE.c.key == key).with_for_update()
            ).one_or_none()
            if row is None:
                values = {"key": key, "kind": kind, "run_id": run_id, "created_at": utc_now()}
                connection.execute(sa.insert(NOTICE).values(**values))
                return True
            if row.sent_at is not None or utc_now() - row.created_at < _AGAIN:
                return False
            connection.execute(
                sa.update(NOTICE).where(NOTICE.c.id == row.id).values(created_at=utc_now())
            )
            return True

        if self.database.read(lambda c: _is_sent(c, key)):
            return False
        return self.database.write(work)

    def finish_notice(self, key: str, *, error: str | None = None) -> None:
        """Note that a notice was sent, or why not; one with an error is tried again."""
        values: dict[str, Any] = {"error": error, "sent_at": None if error else utc_now()}
        self.database.write(
            lambda c: c.execute(sa.update(NOTICE).where(NOTICE.c.key == key).values(**values))
        )

    def ended_passes(
        self, pipelines: Iterable[str], *, since: datetime
    ) -> list[tuple[RunRecord, RepairRecord]]:
        """Passes over runs of triggers that ended after a moment, oldest first."""
        return self._passes(
            RUN.c.pipeline.in_(list(pipelines)),
            REPAIR.c.ended_at >= since,
            REPAIR.c.state.not_in(sorted(ACTIVE)),
        )

    def passes_at_work(self, pipelines: Iterable[str]) -> list[tuple[RunRecord, RepairRecord]]:
        """Passes over runs of triggers that are at work."""
        return self._passes(RUN.c.pipeline.in_(list(pipelines)), RUNNING_REPAIR)

    def late_firings(self, pipelines: Iterable[str], *, since: datetime) -> list[FiringRecord]:
        """Times that were missed or decided late, after a moment."""
        query = (
            sa.select(FIRING)
            .where(
                FIRING.c.pipeline.in_(list(pipelines)),
                FIRING.c.created_at >= since,
                FIRING.c.logical_time.is_not(None),
            )
            .order_by(FIRING.c.id)
        )
        return self.database.read(
            lambda c: [FiringRecord(**row._mapping) for row in c.execute(query)]  # noqa: SLF001
        )

    def _passes(self, *wanted: Any) -> list[tuple[RunRecord, RepairRecord]]:
        query = (
            sa.select(REPAIR)
            .join(RUN, RUN.c.id == REPAIR.c.run_id)
            .where(RUN.c.trigger_key.is_not(None), *wanted)
            .order_by(REPAIR.c.id)
        )

        def work(connection: sa.Connection) -> list[tuple[RunRecord, RepairRecord]]:
            repairs = [repair_record(row) for row in connection.execute(query)]
            ids = {repair.run_id for repair in repairs}
            runs = {
                row.id: run_record(row)
                for row in connection.execute(sa.select(RUN).where(RUN.c.id.in_(ids)))
            }
            return [(runs[repair.run_id], repair) for repair in repairs]

        return self.database.read(work)


def _is_sent(connection: sa.Connection, key: str) -> bool:
    query = sa.select(NOTICE.c.sent_at).where(NOTICE.c.key == key)
    return connection.execute(query).scalar() is not None
