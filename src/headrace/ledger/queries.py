"""Reading the ledger: runs, attempts, slots, and what a look over the leases finds dead."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from headrace.exceptions import RunNotFoundError
from headrace.ledger.base import ATTEMPT, REPAIR, RUN, RUNNING_ATTEMPT, RUNNING_REPAIR, LedgerBase
from headrace.ledger.records import (
    AttemptRecord,
    Reaped,
    RepairRecord,
    RepairRequest,
    RunIf,
    RunRecord,
    State,
    node_name,
)
from headrace.ledger.repair import Graph, RepairPlan, graph_of, plan_repair
from headrace.ledger.rows import attempt_record, beat_of, repair_record, run_record

LATEST = "last"


class Attempted(NamedTuple):
    """What a plan needs of an attempt; a tuple, because a run may have very many."""

    id: int
    task: str
    key: str
    number: int
    state: State
    run_if: RunIf
    depends_on: list[str]
    repair_seq: int
    reused_from: int | None


_TRIED = [ATTEMPT.c[name] for name in Attempted._fields]
_POLL_S = 0.5
_SUFFIX_LENGTH = 4


class ReadStore(LedgerBase):
    """The part of the ledger that reads."""

    def get_run(self, run: str = LATEST) -> RunRecord:
        """The run of this id.

        Args:
            run: An id, the beginning of one, its last four letters, or `last`.

        Raises:
            RunNotFoundError: None or several fit.
        """
        return self.database.read(lambda c: _find_run(c, run.strip()))

    def run_of_flow_run(self, prefect_flow_run_id: str) -> RunRecord | None:
        """The run that a Prefect flow run shows, as itself or as one of its repairs."""
        query = (
            sa.select(RUN)
            .join(REPAIR, REPAIR.c.run_id == RUN.c.id)
            .where(REPAIR.c.prefect_flow_run_id == prefect_flow_run_id)
            .limit(1)
        )
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return run_record(row) if row else None

    def list_runs(
        self,
        *,
        limit: int = 20,
        pipeline: str | None = None,
        state: State | None = None,
        since: datetime | None = None,
    ) -> list[RunRecord]:
        """The latest runs, newest first."""
        query = sa.select(RUN).order_by(RUN.c.number.desc()).limit(limit)
        if pipeline is not None:
            query = query.where(RUN.c.pipeline == pipeline)
        if state is not None:
            query = query.where(RUN.c.state == state)
        if since is not None:
            query = query.where(RUN.c.created_at >= since)
        return self.database.read(lambda c: [run_record(row) for row in c.execute(query)])

    def repairs(self, run_id: str) -> list[RepairRecord]:
        """The run's repairs from 0 on."""
        query = sa.select(REPAIR).where(REPAIR.c.run_id == run_id).order_by(REPAIR.c.seq)
        return self.database.read(lambda c: [repair_record(row) for row in c.execute(query)])

    def current_repair(self, run_id: str) -> RepairRecord:
        """The run's last repair; 0 is the run itself."""
        return self.database.read(lambda c: repair_record(self._last_repair(c, run_id)))

    def attempts(self, run_id: str) -> list[AttemptRecord]:
        """Every attempt of the run, in the order in which they started."""
        query = sa.select(ATTEMPT).where(ATTEMPT.c.run_id == run_id).order_by(ATTEMPT.c.id)
        return self.database.read(lambda c: [attempt_record(row) for row in c.execute(query)])

    def open_attempts(self, run_id: str) -> list[AttemptRecord]:
        """The run's attempts that have not ended."""
        query = (
            sa.select(ATTEMPT)
            .where(ATTEMPT.c.run_id == run_id, RUNNING_ATTEMPT)
            .order_by(ATTEMPT.c.id)
        )
        return self.database.read(lambda c: [attempt_record(row) for row in c.execute(query)])

    def get_attempt(self, attempt_id: int) -> AttemptRecord | None:
        """One attempt, or None."""
        query = sa.select(ATTEMPT).where(ATTEMPT.c.id == attempt_id)
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return attempt_record(row) if row else None

    def latest_attempts(self, run_id: str) -> dict[str, AttemptRecord]:
        """The attempt that counts of every task and item, by name (`task` or `task/key`).

        In the order in which the tasks first came up.
        """
        query = sa.select(ATTEMPT).where(ATTEMPT.c.run_id == run_id).order_by(ATTEMPT.c.id)

        def work(connection: sa.Connection) -> dict[str, AttemptRecord]:
            latest: dict[str, sa.Row[Any]] = {}
            for row in connection.execute(query):
                latest[node_name(row.task, row.key)] = row
            return {name: attempt_record(row) for name, row in latest.items()}

        return self.database.read(work)

    def latest_attempt(self, run_id: str, task: str, key: str = "") -> AttemptRecord | None:
        """The attempt that counts of one task or item, or None when it never came up."""
        query = (
            sa.select(ATTEMPT)
            .where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.task == task, ATTEMPT.c.key == key)
            .order_by(ATTEMPT.c.number.desc())
            .limit(1)
        )
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return attempt_record(row) if row else None

    def count_successes(self, run_id: str, task: str, key: str = "") -> int:
        """How often a task or item of the run ran to success; a reused result does not count."""
        query = (
            sa.select(sa.func.count())
            .select_from(ATTEMPT)
            .where(
                ATTEMPT.c.run_id == run_id,
                ATTEMPT.c.task == task,
                ATTEMPT.c.key == key,
                ATTEMPT.c.state == "success",
                ATTEMPT.c.reused_from.is_(None),
            )
        )
        return self.database.read(lambda c: int(c.execute(query).scalar_one()))

    def last_success(self, pipeline: str, task: str, key: str = "") -> AttemptRecord | None:
        """The last attempt that succeeded in any run; `changes_since` starts from its inputs."""
        query = (
            sa.select(ATTEMPT)
            .where(
                ATTEMPT.c.pipeline == pipeline,
                ATTEMPT.c.task == task,
                ATTEMPT.c.key == key,
                sa.text("attempt.state = 'success'"),
            )
            .order_by(ATTEMPT.c.id.desc())
            .limit(1)
        )
        row = self.database.read(lambda c: c.execute(query).one_or_none())
        return attempt_record(row) if row else None

    def plan_repair(
        self, run_id: str, request: RepairRequest, *, graph: Graph | None = None
    ) -> RepairPlan:
        """What a repair of the run would do; nothing is changed.

        Args:
            run_id: The run.
            request: What is asked for.
            graph: The tasks as the flow's code has them now; None takes what the run recorded.

        Raises:
            TaskNotFoundError: The request names a task that there isn't.
        """
        planned = sa.select(REPAIR.c.seq, REPAIR.c.planned).where(REPAIR.c.run_id == run_id)
        tried = sa.select(*_TRIED).where(ATTEMPT.c.run_id == run_id).order_by(ATTEMPT.c.id)

        def work(connection: sa.Connection) -> tuple[list[Any], list[Any]]:
            rows = connection.execute(tried).all()
            return [Attempted(*row) for row in rows], list(connection.execute(planned).all())

        attempts, repairs = self.database.read(work)
        return plan_repair(
            graph_of(attempts) if graph is None else graph,
            attempts,
            request,
            owed=_owed(repairs, attempts),
        )

    def slots(self, limits: Iterable[str] | None = None) -> dict[str, int]:
        """How much of each limit the live attempts hold; a dead one holds none.

        Args:
            limits: Names to count; None counts every limit that anything holds.
        """
        taken = self.database.read(self._taken)
        return taken if limits is None else {name: taken.get(name, 0) for name in limits}

    def live_runs(self, pipeline: str) -> list[str]:
        """Ids of the pipeline's runs that a live process drives."""
        return self.database.read(lambda c: self._live_runs(c, pipeline))

    def live_holders(self, run_id: str) -> dict[str, float]:
        """What of the run is alive, and the seconds until each lease is over without a beat."""
        return dict(self.database.read(lambda c: self.live_leases(c, run_id)))

    def wait_until_idle(self, run_id: str, *, timeout_s: float) -> bool:
        """Wait for the run's leases to end, and mark as crashed what proves dead.

        A lease of another machine has to be watched for its length before it is known to be over.

        Returns:
            Whether nothing is alive any more.
        """
        end = time.monotonic() + timeout_s
        while self.live_holders(run_id):
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL_S, left))
        self.reap_expired()
        return True

    def reap_expired(self, now: float | None = None) -> Reaped:
        """Mark as crashed whatever lost its lease: attempts, and runs without a driver.

        Call it every few seconds from a process that stays (leases of other machines are judged
        by watching them), or once before a decision.

        Args:
            now: Seconds on the observer's monotonic clock, if not the present.
        """
        if not self.database.read(
            lambda c: self._dead(c, ATTEMPT, now) + self._dead(c, REPAIR, now)
        ):
            return Reaped()
        return self.database.write(lambda c: self._reap(c, now))

    def _dead(
        self, connection: sa.Connection, table: sa.Table, now: float | None
    ) -> list[sa.Row[Any]]:
        running = RUNNING_ATTEMPT if table is ATTEMPT else RUNNING_REPAIR
        rows = connection.execute(sa.select(table).where(running)).all()
        return [row for row in rows if not self.watch.is_live(beat_of(table.name, row), now)]

    def _reap(self, connection: sa.Connection, now: float | None) -> Reaped:
        crashed: dict[str, list[int]] = {"attempt": [], "repair": []}
        for table in (ATTEMPT, REPAIR):
            for row in self._dead(connection, table, now):
                if self._crash(connection, table, row):
                    crashed[table.name].append(row.id)
        attempts = connection.execute(
            sa.select(ATTEMPT).where(ATTEMPT.c.id.in_(crashed["attempt"])).order_by(ATTEMPT.c.id)
        ).all()
        repairs = connection.execute(
            sa.select(REPAIR).where(REPAIR.c.id.in_(crashed["repair"])).order_by(REPAIR.c.id)
        ).all()
        for row in repairs:
            if row.seq == self._last_repair(connection, row.run_id).seq:
                connection.execute(
                    sa.update(RUN)
                    .where(RUN.c.id == row.run_id)
                    .values(state="crashed", ended_at=row.ended_at)
                )
        return Reaped(
            attempts=tuple(attempt_record(row) for row in attempts),
            repairs=tuple(repair_record(row) for row in repairs),
        )


def _owed(repairs: Iterable[sa.Row[Any]], attempts: Iterable[Attempted]) -> set[str]:
    """What some repair set out to run and neither it nor a later one came to."""
    reached: dict[str, int] = {}
    for attempt in attempts:
        if attempt.reused_from is None:
            name = node_name(attempt.task, attempt.key)
            reached[name] = max(attempt.repair_seq, reached.get(name, -1))
    return {name for row in repairs for name in row.planned if reached.get(name, -1) < row.seq}


def _find_run(connection: sa.Connection, run: str) -> RunRecord:
    newest = sa.select(RUN).order_by(RUN.c.number.desc()).limit(6)
    if run == LATEST:
        found = connection.execute(newest.limit(1)).all()
    else:
        # No id holds a wildcard of LIKE, and a wildcard must not find one.
        found = connection.execute(newest.where(RUN.c.id.startswith(run, autoescape=True))).all()
        exact = [row for row in found if row.id == run]
        found = exact or found
        if not found and len(run) == _SUFFIX_LENGTH:
            found = connection.execute(
                newest.where(RUN.c.id.endswith(f"-{run}", autoescape=True))
            ).all()
    if len(found) == 1 and run:
        return run_record(found[0])
    near = found or connection.execute(newest).all()
    raise RunNotFoundError(run=run, near=[row.id for row in near][:5], several=len(found) > 1)
