"""Writing runs and repairs: create, claim, repair, renew, finish."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from headrace.exceptions import (
    LeaseLostError,
    RepairConflictError,
    RunBusyError,
    SlotsFullError,
    TriggerTakenError,
)
from headrace.ledger.base import (
    ATTEMPT,
    REPAIR,
    RUN,
    RUNNING_ATTEMPT,
    RUNNING_REPAIR,
    LedgerBase,
    set_run,
)
from headrace.ledger.records import (
    ACTIVE,
    LEASE_S,
    RepairRecord,
    RepairRequest,
    RunRecord,
    RunRequest,
    State,
    new_run_id,
    new_token,
)
from headrace.ledger.repair import RepairPlan
from headrace.ledger.rows import (
    beat_of,
    beat_values,
    code_values,
    new_lease_values,
    repair_record,
    repair_title,
    run_record,
    utc_now,
)


class RunStore(LedgerBase):
    """The part of the ledger that writes runs and repairs."""

    def create_run(
        self, request: RunRequest, *, claim: bool = True, lease_s: float = LEASE_S
    ) -> tuple[RunRecord, RepairRecord]:
        """Record a new run and its repair 0.

        Args:
            request: What the run is made of.
            claim: Start it at once, driven by this process; otherwise it waits for `claim_repair`.
            lease_s: Length of the driver's lease.

        Returns:
            The run, and repair 0 with the driver's token.

        Raises:
            TriggerTakenError: Another run has the same `trigger_key`.
        """
        run_id, token = new_run_id(utc_now()), new_token()

        def work(connection: sa.Connection) -> tuple[RunRecord, RepairRecord]:
            if not self._has_run(connection, run_id):
                self._check_trigger(connection, request)
                self._insert_run(connection, run_id, request, claim=claim)
                lease = new_lease_values(self.watch, token, lease_s) if claim else {}
                repair = RepairRequest(
                    profiles=request.profiles, user=request.user, code=request.code
                )
                self._insert_repair(connection, run_id, 0, repair, {**lease, "planned": []})
            return _run(connection, run_id), repair_record(self._last_repair(connection, run_id))

        try:
            return self.database.write(work)
        except sa.exc.IntegrityError:
            # On PostgreSQL two triggers may fire at the same moment: the loser learns who won.
            self.database.read(lambda c: self._check_trigger(c, request))
            raise

    def claim_repair(
        self,
        run_id: str,
        seq: int = 0,
        *,
        max_concurrent: int | None = None,
        lease_s: float = LEASE_S,
    ) -> RepairRecord:
        """Become the driver of a run, or of a repair, that waits.

        Args:
            run_id: The run.
            seq: The repair; 0 is the run itself.
            max_concurrent: How many runs of the pipeline may be driven at once, this one included.
            lease_s: Length of the driver's lease.

        Raises:
            SlotsFullError: As many runs of the pipeline are alive as may be.
            RunBusyError: Somebody drives it.
            LeaseLostError: It has ended.
        """
        token = new_token()

        def work(connection: sa.Connection) -> RepairRecord:
            run = self._lock_run(connection, run_id)
            row = _repair(connection, run_id, seq)
            if row is None or row.state not in ACTIVE:
                raise LeaseLostError(
                    holder=f"repair {seq} of run {run_id}", state=row.state if row else "unknown"
                )
            if row.state == "running" and row.token != token:
                left = self.watch.left_s(beat_of("repair", row))
                holder = f"{repair_title(row)} (pid {row.pid} on {row.host})"
                raise RunBusyError(run_id=run_id, holders=[holder], wait_s=left or row.lease_s)
            if row.state == "queued":
                self._check_concurrency(connection, run.pipeline, max_concurrent)
                connection.execute(
                    sa.update(REPAIR)
                    .where(REPAIR.c.id == row.id)
                    .values(
                        state="running",
                        started_at=utc_now(),
                        **new_lease_values(self.watch, token, lease_s),
                    )
                )
                _start_run(connection, run_id)
            return repair_record(_one_repair(connection, run_id, seq))

        return self.database.write(work)

    def start_repair(
        self,
        run_id: str,
        request: RepairRequest,
        *,
        plan: RepairPlan | None = None,
        after_seq: int | None = None,
        claim: bool = True,
        lease_s: float = LEASE_S,
    ) -> RepairRecord:
        """Open the run's next repair; of two that try at once, one wins.

        Args:
            run_id: The run.
            request: What the repair is asked to do.
            plan: What it will run; a later repair makes up for what this one does not come to.
            after_seq: The last repair that the caller's plan knows; None means whatever is last.
            claim: Drive it from this process; otherwise it waits for `claim_repair`.
            lease_s: Length of the driver's lease.

        Raises:
            RunBusyError: The run, or one of its attempts, holds a live lease.
            RepairConflictError: Somebody else repaired it since `after_seq`, or has one waiting.
        """
        token = new_token()
        planned = [done.name for done in plan.decisions if done.again] if plan else []

        def work(connection: sa.Connection) -> RepairRecord:
            run = self._lock_run(connection, run_id)
            last = self._last_repair(connection, run_id)
            if claim and last.token == token:
                return repair_record(last)
            if (after_seq is not None and last.seq != after_seq) or (
                last.seq and last.state == "queued"
            ):
                raise _conflict(last)
            self._check_idle(connection, run)
            lease = new_lease_values(self.watch, token, lease_s) if claim else {}
            self._insert_repair(
                connection, run_id, last.seq + 1, request, {**lease, "planned": planned}
            )
            if claim:
                _start_run(connection, run_id)
            else:
                set_run(connection, run_id, state="queued", ended_at=None)
            return repair_record(self._last_repair(connection, run_id))

        try:
            return self.database.write(work)
        except sa.exc.IntegrityError as error:
            last = self.database.read(lambda c: self._last_repair(c, run_id))
            raise _conflict(last) from error

    def renew_driver(
        self,
        repair_id: int,
        token: str,
        lease_s: float = LEASE_S,
        *,
        patience_s: float | None = None,
    ) -> None:
        """Renew the lease of the process that drives a run.

        Raises:
            LeaseLostError: The run was found dead, or is no longer this process's.
        """

        def work(connection: sa.Connection) -> None:
            done = connection.execute(
                sa.update(REPAIR)
                .where(
                    REPAIR.c.id == repair_id, REPAIR.c.token == token, REPAIR.c.state == "running"
                )
                .values(beat=REPAIR.c.beat + 1, **beat_values(self.watch, lease_s))
            )
            if not done.rowcount:
                row = connection.execute(
                    sa.select(REPAIR).where(REPAIR.c.id == repair_id)
                ).one_or_none()
                raise LeaseLostError(
                    holder=repair_title(row) if row else f"repair id {repair_id}",
                    state=row.state if row else "unknown",
                )

        self.database.write(work, patience_s=patience_s)

    def finish_run(self, run_id: str, seq: int, state: State, *, token: str) -> RunRecord:
        """Record how a run, or a repair of it, ended.

        Raises:
            LeaseLostError: It was found dead before, or is no longer this process's.
        """

        def work(connection: sa.Connection) -> RunRecord:
            self._lock_run(connection, run_id)
            row = _repair(connection, run_id, seq)
            if row is None or row.token != token or row.state not in ("running", state):
                raise LeaseLostError(
                    holder=repair_title(row) if row else f"repair {seq} of run {run_id}",
                    state=row.state if row else "unknown",
                )
            if row.state == "running":
                now = utc_now()
                connection.execute(
                    sa.update(REPAIR)
                    .where(REPAIR.c.id == row.id)
                    .values(state=state, ended_at=now, lease_expires_at=None)
                )
                if row.seq == self._last_repair(connection, run_id).seq:
                    set_run(connection, run_id, state=state, ended_at=now)
            self.watch.forget(("repair", row.id))
            return _run(connection, run_id)

        return self.database.write(work)

    def _has_run(self, connection: sa.Connection, run_id: str) -> bool:
        return bool(connection.execute(sa.select(RUN.c.id).where(RUN.c.id == run_id)).scalar())

    def _check_trigger(self, connection: sa.Connection, request: RunRequest) -> None:
        if request.trigger_key is None:
            return
        taken = connection.execute(
            sa.select(RUN.c.id).where(
                RUN.c.pipeline == request.pipeline, RUN.c.trigger_key == request.trigger_key
            )
        ).scalar()
        if taken is not None:
            raise TriggerTakenError(
                pipeline=request.pipeline, trigger_key=request.trigger_key, run_id=taken
            )

    def _insert_run(
        self, connection: sa.Connection, run_id: str, request: RunRequest, *, claim: bool
    ) -> None:
        now = utc_now()
        connection.execute(
            sa.insert(RUN).values(
                id=run_id,
                state="running" if claim else "queued",
                created_at=now,
                started_at=now if claim else None,
                **code_values(request.code),
                **request.model_dump(exclude={"code", "profiles"}),
            )
        )

    def _insert_repair(
        self,
        connection: sa.Connection,
        run_id: str,
        seq: int,
        request: RepairRequest,
        values: dict[str, Any],
    ) -> None:
        now, claimed = utc_now(), "token" in values
        connection.execute(
            sa.insert(REPAIR).values(
                run_id=run_id,
                seq=seq,
                state="running" if claimed else "queued",
                created_at=now,
                started_at=now if claimed else None,
                **code_values(request.code),
                **request.model_dump(exclude={"code"}),
                **values,
            )
        )

    def _check_concurrency(
        self, connection: sa.Connection, pipeline: str, most: int | None
    ) -> None:
        if most is None:
            return
        self._lock_name(connection, f"pipeline {pipeline}")
        alive = len(self._live_runs(connection, pipeline))
        if alive >= most:
            raise SlotsFullError(limit=pipeline, taken=alive, most=most)

    def _check_idle(self, connection: sa.Connection, run: sa.Row[Any]) -> None:
        """Refuse while a lease is live; mark as crashed what holds a dead one."""
        live = self.live_leases(connection, run.id)
        if not live and run.state == "queued":
            live = [("the run itself, which has not started yet", 0.0)]
        if live:
            raise RunBusyError(
                run_id=run.id,
                holders=[title for title, _ in live],
                wait_s=max(left for _, left in live),
            )
        for table, running in ((REPAIR, RUNNING_REPAIR), (ATTEMPT, RUNNING_ATTEMPT)):
            dead = connection.execute(sa.select(table).where(table.c.run_id == run.id, running))
            for row in dead.all():
                self._crash(connection, table, row)


def _conflict(last: sa.Row[Any]) -> RepairConflictError:
    return RepairConflictError(run_id=last.run_id, seq=last.seq, user=last.user, state=last.state)


def _start_run(connection: sa.Connection, run_id: str) -> None:
    started = sa.func.coalesce(
        RUN.c.started_at, sa.bindparam("now", utc_now(), RUN.c.started_at.type)
    )
    set_run(connection, run_id, state="running", started_at=started, ended_at=None)


def _run(connection: sa.Connection, run_id: str) -> RunRecord:
    return run_record(connection.execute(sa.select(RUN).where(RUN.c.id == run_id)).one())


def _repair(connection: sa.Connection, run_id: str, seq: int) -> sa.Row[Any] | None:
    return connection.execute(
        sa.select(REPAIR).where(REPAIR.c.run_id == run_id, REPAIR.c.seq == seq)
    ).one_or_none()


def _one_repair(connection: sa.Connection, run_id: str, seq: int) -> sa.Row[Any]:
    return connection.execute(
        sa.select(REPAIR).where(REPAIR.c.run_id == run_id, REPAIR.c.seq == seq)
    ).one()
