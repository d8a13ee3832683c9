"""Reading what triggers did: firings, the runs that they made, and what came of those."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.base import REPAIR, RUN, LedgerBase
from headrace.ledger.firing_records import FiringRecord
from headrace.ledger.records import ACTIVE, GOOD, RunRecord, State
from headrace.ledger.rows import run_record

FIRING = schema.firing

_KEY_LENGTH = 200


class TriggerReadStore(LedgerBase):
    """The part of the ledger that is asked what triggers did."""

    def list_firings(
        self, pipeline: str, trigger: str | None = None, *, limit: int = 20
    ) -> list[FiringRecord]:
        """The latest decisions of a pipeline's triggers, newest first."""
        query = sa.select(FIRING).where(FIRING.c.pipeline == pipeline)
        if trigger is not None:
            query = query.where(FIRING.c.trigger == trigger)
        query = query.order_by(FIRING.c.id.desc()).limit(limit)
        return self.database.read(lambda c: [firing_record(row) for row in c.execute(query)])

    def firing_of_run(self, run_id: str) -> FiringRecord | None:
        """What started a run, or None when nothing but a person did."""
        query = sa.select(FIRING).where(FIRING.c.run_id == run_id).limit(1)
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return firing_record(row) if row is not None else None

    def waiting_runs(self, pipelines: Iterable[str]) -> list[RunRecord]:
        """Runs of triggers that nobody has started yet, oldest first."""
        query = (
            sa.select(RUN)
            .where(
                RUN.c.state == "queued",
                RUN.c.trigger_key.is_not(None),
                RUN.c.pipeline.in_(list(pipelines)),
            )
            .order_by(RUN.c.number)
        )
        return self.database.read(lambda c: [run_record(row) for row in c.execute(query)])

    def active_runs(self, pipeline: str) -> list[RunRecord]:
        """Runs of a pipeline that wait or are at work, oldest first."""
        query = (
            sa.select(RUN)
            .where(RUN.c.state.in_(sorted(ACTIVE)), RUN.c.pipeline == pipeline)
            .order_by(RUN.c.number)
        )
        return self.database.read(lambda c: [run_record(row) for row in c.execute(query)])

    def last_trigger_run(self, pipeline: str, trigger: str) -> RunRecord | None:
        """The newest run that a trigger started."""
        query = (
            sa.select(RUN)
            .join(FIRING, FIRING.c.run_id == RUN.c.id)
            .where(FIRING.c.pipeline == pipeline, FIRING.c.trigger == trigger)
            .order_by(RUN.c.number.desc())
            .limit(1)
        )
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return run_record(row) if row is not None else None

    def ends_after(
        self, pipeline: str, repair_id: int
    ) -> tuple[list[tuple[int, str, int, State]], int]:
        """Ends of a pipeline's runs, as they come.

        Args:
            pipeline: The pipeline.
            repair_id: Everything up to this pass over a run is known.

        Returns:
            (pass, run, number of the pass, state) of those that ended, and the last pass before
            the first that has not ended: what comes after it may still have news.
        """
        query = (
            sa.select(REPAIR.c.id, REPAIR.c.run_id, REPAIR.c.seq, REPAIR.c.state)
            .join(RUN, RUN.c.id == REPAIR.c.run_id)
            .where(RUN.c.pipeline == pipeline, REPAIR.c.id > repair_id)
            .order_by(REPAIR.c.id)
        )
        rows = self.database.read(lambda c: list(c.execute(query)))
        ended = [
            (row.id, row.run_id, row.seq, row.state) for row in rows if row.state not in ACTIVE
        ]
        open_ids = [row.id for row in rows if row.state in ACTIVE]
        newest = max((row.id for row in rows), default=repair_id)
        return ended, (open_ids[0] - 1 if open_ids else newest)

    def newest_repair(self) -> int:
        """Id of the newest pass over any run."""
        query = sa.select(sa.func.coalesce(sa.func.max(REPAIR.c.id), 0))
        return int(self.database.read(lambda c: c.execute(query).scalar_one()))

    def fired_keys(self, pipeline: str, trigger: str, keys: Sequence[str]) -> set[str]:
        """Those of some keys that a trigger has decided about."""
        query = sa.select(FIRING.c.key).where(
            FIRING.c.pipeline == pipeline,
            FIRING.c.trigger == trigger,
            FIRING.c.key.in_([short_key(key) for key in keys]),
        )
        return set(self.database.read(lambda c: list(c.execute(query).scalars())))

    def trouble_before(self, run: RunRecord) -> bool:
        """Whether the pipeline's run before, or an earlier pass over this one, did not succeed."""
        before = (
            sa.select(RUN.c.state)
            .where(
                RUN.c.pipeline == run.pipeline,
                RUN.c.number < run.number,
                RUN.c.state.not_in([*ACTIVE, "cancelled"]),
            )
            .order_by(RUN.c.number.desc())
            .limit(1)
        )
        passes = sa.select(REPAIR.c.state).where(REPAIR.c.run_id == run.id).order_by(REPAIR.c.seq)

        def work(connection: sa.Connection) -> bool:
            own = list(connection.execute(passes).scalars())[:-1]
            last = connection.execute(before).scalar()
            return any(state not in GOOD for state in own) or (
                not own and last is not None and last not in GOOD
            )

        return self.database.read(work)


def short_key(key: str) -> str:
    """A key that fits its column; a long one ends in its digest."""
    if len(key) <= _KEY_LENGTH:
        return key
    return f"{key[: _KEY_LENGTH - 33]}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def firing_record(row: sa.Row[Any]) -> FiringRecord:
    """A row of the table of firings as a record."""
    return FiringRecord(**row._mapping)  # noqa: SLF001
