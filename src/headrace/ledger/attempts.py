"""Writing attempts: start under a lease, renew, finish once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from headrace.exceptions import LeaseLostError, RunBusyError, SlotsFullError
from headrace.ledger.base import ATTEMPT, LedgerBase
from headrace.ledger.records import (
    LEASE_S,
    AttemptRecord,
    AttemptRequest,
    Outcome,
    Share,
    new_token,
)
from headrace.ledger.rows import (
    attempt_record,
    attempt_title,
    beat_of,
    beat_values,
    lineage_values,
    new_lease_values,
    utc_now,
)


class AttemptStore(LedgerBase):
    """The part of the ledger that writes attempts."""

    def start_attempt(
        self,
        run_id: str,
        request: AttemptRequest,
        *,
        seq: int,
        token: str,
        lease_s: float = LEASE_S,
    ) -> AttemptRecord:
        """Record that a task starts, under a lease of its own.

        Args:
            run_id: The run.
            request: What is known of the attempt.
            seq: The repair that it belongs to.
            token: The driver's token, from that repair.
            lease_s: Length of the attempt's lease.

        Returns:
            The attempt, with its own fence token.

        Raises:
            LeaseLostError: The driver is no longer the run's driver.
            RunBusyError: An older attempt of the same task is still alive.
            SlotsFullError: A limit has no free slot.
        """
        own = new_token()

        def work(connection: sa.Connection) -> AttemptRecord:
            run = self._lock_run(connection, run_id)
            mine = connection.execute(
                sa.select(ATTEMPT).where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.token == own)
            ).one_or_none()
            if mine is not None:
                return attempt_record(mine)
            self._check_driver(connection, run_id, seq, token)
            self._end_older(connection, run_id, request)
            self._check_limits(connection, request.limits)
            return self._insert(
                connection,
                run,
                request,
                repair_seq=seq,
                state="running",
                started_at=utc_now(),
                **new_lease_values(self.watch, own, lease_s),
            )

        return self.database.write(work)

    def renew_lease(
        self,
        attempt_id: int,
        token: str,
        lease_s: float = LEASE_S,
        *,
        patience_s: float | None = None,
    ) -> None:
        """Renew an attempt's lease: one heartbeat.

        Raises:
            LeaseLostError: The attempt was found dead, or has ended.
        """

        def work(connection: sa.Connection) -> None:
            done = connection.execute(
                sa.update(ATTEMPT)
                .where(
                    ATTEMPT.c.id == attempt_id,
                    ATTEMPT.c.token == token,
                    ATTEMPT.c.state == "running",
                )
                .values(beat=ATTEMPT.c.beat + 1, **beat_values(self.watch, lease_s))
            )
            if not done.rowcount:
                raise lost_attempt(connection, attempt_id)

        self.database.write(work, patience_s=patience_s)

    def finish_attempt(self, attempt_id: int, token: str, outcome: Outcome) -> AttemptRecord:
        """Record how an attempt ended, exactly once.

        Raises:
            LeaseLostError: It was found dead before; the late outcome is refused.
        """
        values: dict[str, Any] = {
            "state": outcome.state,
            "result": outcome.result,
            "inputs": lineage_values(outcome.inputs),
            "outputs": lineage_values(outcome.outputs),
            "error": outcome.error.model_dump() if outcome.error else None,
            "ended_at": utc_now(),
            "lease_expires_at": None,
            **({"usage": outcome.usage} if outcome.usage is not None else {}),
            **({"reason": outcome.reason} if outcome.reason is not None else {}),
        }

        def work(connection: sa.Connection) -> AttemptRecord:
            done = connection.execute(
                sa.update(ATTEMPT)
                .where(
                    ATTEMPT.c.id == attempt_id,
                    ATTEMPT.c.token == token,
                    ATTEMPT.c.state == "running",
                )
                .values(**values)
            )
            row = _attempt(connection, attempt_id)
            # The same holder and outcome again: the first answer of the commit got lost.
            repeated = row is not None and row.token == token and row.state == outcome.state
            if row is None or not (done.rowcount or repeated):
                raise lost_attempt(connection, attempt_id)
            self.watch.forget(("attempt", attempt_id))
            return attempt_record(row)

        return self.database.write(work)

    def _insert(
        self,
        connection: sa.Connection,
        run: sa.Row[Any],
        request: AttemptRequest,
        **values: Any,
    ) -> AttemptRecord:
        """Add an attempt under the next number; the run's lock keeps numbers without gaps."""
        last = self._latest(connection, run.id, request.task, request.key)
        known = request.model_dump(exclude={"limits"})
        row = {
            **known,
            "run_id": run.id,
            "pipeline": run.pipeline,
            "number": last.number + 1 if last is not None else 1,
            "limits": {name: share.take for name, share in sorted(request.limits.items())},
            "inputs": [],
            "outputs": [],
            **values,
        }
        inserted = connection.execute(
            sa.insert(ATTEMPT).values(**row).returning(ATTEMPT.c.id)
        ).one()
        return attempt_record(
            connection.execute(sa.select(ATTEMPT).where(ATTEMPT.c.id == inserted.id)).one()
        )

    def _end_older(self, connection: sa.Connection, run_id: str, request: AttemptRequest) -> None:
        """A task has one live attempt at most; a dead one is marked as crashed."""
        row = self._latest(connection, run_id, request.task, request.key)
        if row is None or row.state != "running":
            return
        left = self.watch.left_s(beat_of("attempt", row))
        if left > 0:
            holder = f"{attempt_title(row)} (pid {row.pid} on {row.host})"
            raise RunBusyError(run_id=run_id, holders=[holder], wait_s=left)
        self._crash(connection, ATTEMPT, row)

    def _latest(
        self, connection: sa.Connection, run_id: str, task: str, key: str
    ) -> sa.Row[Any] | None:
        return connection.execute(
            sa.select(ATTEMPT)
            .where(ATTEMPT.c.run_id == run_id, ATTEMPT.c.task == task, ATTEMPT.c.key == key)
            .order_by(ATTEMPT.c.number.desc())
            .limit(1)
        ).one_or_none()

    def _check_limits(self, connection: sa.Connection, limits: Mapping[str, Share]) -> None:
        if not limits:
            return
        for name in sorted(limits):  # Always in one order, so that two can't wait for each other.
            self._lock_name(connection, name)
        taken = self._taken(connection)
        for name, share in limits.items():
            held = taken.get(name, 0)
            if held + share.take > share.most:
                raise SlotsFullError(limit=name, taken=held, most=share.most)


def _attempt(connection: sa.Connection, attempt_id: int) -> sa.Row[Any] | None:
    return connection.execute(sa.select(ATTEMPT).where(ATTEMPT.c.id == attempt_id)).one_or_none()


def lost_attempt(connection: sa.Connection, attempt_id: int) -> LeaseLostError:
    """The error for a holder whose attempt is no longer its own, with the state it has now."""
    row = _attempt(connection, attempt_id)
    if row is None:
        return LeaseLostError(holder=f"attempt id {attempt_id}", state="unknown")
    return LeaseLostError(holder=attempt_title(row), state=row.state)
