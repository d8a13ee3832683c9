"""What `headrace gc` may remove by age, and what a repair, or the next run, still needs.

Two things are removed at different times. A run's files (attempt folders with logs and results,
staging tables) go first; its rows in the ledger are small and go much later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.base import ATTEMPT, REPAIR, RUN
from headrace.ledger.records import ACTIVE, GOOD, RunRecord
from headrace.ledger.rows import run_record

if TYPE_CHECKING:
    from headrace.ledger.base import LedgerBase

FIRING, NOTICE = schema.firing, schema.notice

_CHUNK = 500


@dataclass(frozen=True, kw_only=True)
class RetentionRule:
    """How long what runs leave is kept, counted from their end.

    Attributes:
        files_days: Files of a run that succeeded.
        repair_days: Files of a run that did not, and all that a repair of it needs.
        rows_days: Rows of the ledger.
    """

    files_days: float = 14
    repair_days: float = 60
    rows_days: float = 365


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is known of the runs as a whole.

    Attributes:
        live: Runs with a live lease, whatever their state says.
        last_successes: Runs that hold the last success of a task: `changes_since` starts there.
        parents: Runs that started another run which is still kept.
    """

    live: Collection[str] = ()
    last_successes: Collection[str] = ()
    parents: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What becomes of one run's leavings.

    Attributes:
        run_id: The run.
        files: Whether its logs, results and staging tables may go.
        rows: Whether its rows may go.
        why: The reason for what is kept, or for the removal.
    """

    run_id: str
    files: bool
    rows: bool
    why: str


def plan_removals(
    runs: Iterable[RunRecord], *, now: datetime, rule: RetentionRule, keeping: Keeping
) -> list[Removal]:
    """Decide for each run what may be removed.

    A run without an end, or with one that lies ahead (the clock was set back), is kept.

    Args:
        runs: The runs to look at.
        now: The present.
        rule: How long things are kept.
        keeping: What is known of the runs as a whole.
    """
    return [_removal(run, now, rule, keeping) for run in runs]


def _removal(run: RunRecord, now: datetime, rule: RetentionRule, keeping: Keeping) -> Removal:
    if run.state in ACTIVE or run.id in keeping.live or run.ended_at is None:
        return Removal(run_id=run.id, files=False, rows=False, why="it is not over")
    days = (now - run.ended_at) / timedelta(days=1)
    limit = rule.files_days if run.state in GOOD else max(rule.repair_days, rule.files_days)
    if days <= limit:
        reason = "it is recent" if run.state in GOOD else "it may still be repaired"
        return Removal(run_id=run.id, files=False, rows=False, why=reason)
    if days <= max(rule.rows_days, limit):
        return Removal(run_id=run.id, files=True, rows=False, why=f"ended {days:.0f} days ago")
    if run.id in keeping.last_successes:
        reason = "it holds the last success of a task"
        return Removal(run_id=run.id, files=True, rows=False, why=reason)
    if run.id in keeping.parents:
        return Removal(run_id=run.id, files=True, rows=False, why="a kept run came from it")
    return Removal(run_id=run.id, files=True, rows=True, why=f"ended {days:.0f} days ago")


def load_removals(ledger: LedgerBase, *, now: datetime, rule: RetentionRule) -> list[Removal]:
    """Look at every run in the ledger that is old enough, oldest first; nothing is removed.

    Args:
        ledger: The ledger.
        now: The present.
        rule: How long things are kept.
    """
    oldest = now - timedelta(days=min(rule.files_days, rule.repair_days))
    query = sa.select(RUN).where(RUN.c.ended_at < oldest).order_by(RUN.c.number)

    def work(connection: sa.Connection) -> list[Removal]:
        runs = [run_record(row) for row in connection.execute(query)]
        children = connection.execute(
            sa.select(RUN.c.parent_run_id, RUN.c.id).where(RUN.c.parent_run_id.is_not(None))
        ).all()
        live, last = ledger.live_run_ids(connection), _last_successes(connection)
        parents: set[str] = set()
        while True:
            keeping = Keeping(live=live, last_successes=last, parents=parents)
            plan = plan_removals(runs, now=now, rule=rule, keeping=keeping)
            going = {removal.run_id for removal in plan if removal.rows}
            # A parent goes together with its last child, or after it; so does the parent's parent.
            kept_from = {parent for parent, child in children if child not in going}
            if kept_from <= parents:
                return plan
            parents |= kept_from

    return ledger.database.read(work)


def needed_versions(
    ledger: LedgerBase, *, now: datetime, rule: RetentionRule
) -> dict[str, set[int]]:
    """Versions of tables that a repair may still read, by address: do not vacuum them.

    They are the outputs of the successful attempts of runs that are not over, or that did not
    succeed and are recent enough to be repaired.
    """
    since = now - timedelta(days=rule.repair_days)
    repairable = sa.and_(RUN.c.state.not_in(GOOD), RUN.c.ended_at >= since)
    query = (
        sa.select(ATTEMPT.c.outputs)
        .join(RUN, RUN.c.id == ATTEMPT.c.run_id)
        .where(ATTEMPT.c.state == "success", sa.or_(RUN.c.ended_at.is_(None), repairable))
    )
    needed: dict[str, set[int]] = {}
    for outputs in ledger.database.read(lambda c: list(c.execute(query).scalars())):
        for use in outputs:
            needed.setdefault(use["ref"]["uri"], set()).add(use["ref"]["version"])
    return needed


def remove_rows(ledger: LedgerBase, run_ids: Collection[str]) -> int:
    """Delete runs from the ledger, with their repairs and attempts.

    Runs that have come to life since the plan was made stay.

    Returns:
        How many runs were deleted.
    """
    ids = sorted(run_ids)
    chunks = [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
    # Short transactions: a heartbeat must not wait behind a large clean-up.
    return sum(ledger.database.write(partial(_delete, ids=chunk)) for chunk in chunks)


def _delete(connection: sa.Connection, ids: list[str]) -> int:
    over = list(
        connection.execute(
            sa.select(RUN.c.id)
            .where(RUN.c.id.in_(ids), RUN.c.state.not_in(ACTIVE))
            .with_for_update()
        ).scalars()
    )
    for table, column in ((ATTEMPT, ATTEMPT.c.run_id), (REPAIR, REPAIR.c.run_id), (RUN, RUN.c.id)):
        connection.execute(sa.delete(table).where(column.in_(over)))
    return len(over)


def remove_firings(ledger: LedgerBase, *, now: datetime, rule: RetentionRule) -> int:
    """Delete what triggers decided, and what people were told, longer ago than rows are kept.

    What belongs to a run that is still there stays, and so does the last decision of each trigger.
    The triggers themselves know where they stand by their cursors, so nothing fires again.

    Returns:
        How many decisions were deleted.
    """
    before = now - timedelta(days=max(rule.rows_days, rule.repair_days, rule.files_days))
    kept_runs = sa.select(RUN.c.id)
    latest = sa.select(sa.func.max(FIRING.c.id)).group_by(FIRING.c.pipeline, FIRING.c.trigger)

    def old(table: sa.Table) -> sa.ColumnElement[bool]:
        has_run = sa.and_(table.c.run_id.is_not(None), table.c.run_id.in_(kept_runs))
        return sa.and_(table.c.created_at < before, sa.not_(has_run))

    def work(connection: sa.Connection) -> int:
        connection.execute(sa.delete(NOTICE).where(old(NOTICE)))
        going = sa.delete(FIRING).where(old(FIRING), FIRING.c.id.not_in(latest))
        return connection.execute(going).rowcount

    return ledger.database.write(work)


def _last_successes(connection: sa.Connection) -> set[str]:
    """Runs with the last success of some task, or item of it, in some pipeline."""
    last = (
        sa.select(sa.func.max(ATTEMPT.c.id))
        .where(sa.text("attempt.state = 'success'"))
        .group_by(ATTEMPT.c.pipeline, ATTEMPT.c.task, ATTEMPT.c.key)
    )
    return set(
        connection.execute(sa.select(ATTEMPT.c.run_id).where(ATTEMPT.c.id.in_(last))).scalars()
    )
