"""Writing how tasks ended that did not run: skipped, reused, marked by hand."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa

from headrace.exceptions import RunBusyError, TaskNotFoundError
from headrace.ledger.attempts import AttemptStore
from headrace.ledger.base import ATTEMPT, set_run
from headrace.ledger.conditions import run_state
from headrace.ledger.records import AttemptRecord, AttemptRequest, ErrorInfo, node_name
from headrace.ledger.rows import attempt_record, utc_now

_MARK_KEEPS = ("profile", "engine", "inputs", "outputs")


class MarkStore(AttemptStore):
    """The part of the ledger that writes how tasks ended that did not run."""

    def record_skipped(
        self,
        run_id: str,
        request: AttemptRequest,
        state: Literal["upstream_failed", "excluded", "cancelled", "failed"],
        *,
        seq: int,
        token: str,
        reason: str = "",
        error: ErrorInfo | None = None,
    ) -> AttemptRecord:
        """Record a task that does not start, so that it has a history too.

        Args:
            run_id: The run.
            request: What is known of the task.
            state: Why it does not start; `failed` when its call was wrong.
            seq: The repair that it belongs to.
            token: The driver's token.
            reason: The same in words.
            error: What was wrong with the call.

        Raises:
            LeaseLostError: The driver is no longer the run's driver.
        """

        def work(connection: sa.Connection) -> AttemptRecord:
            run = self._lock_run(connection, run_id)
            self._check_driver(connection, run_id, seq, token)
            last = self._latest(connection, run_id, request.task, request.key)
            if last is not None and (last.repair_seq, last.state, last.reason) == (
                seq,
                state,
                reason,
            ):
                return attempt_record(last)
            self._end_older(connection, run_id, request)
            return self._insert(
                connection,
                run,
                request,
                repair_seq=seq,
                state=state,
                reason=reason,
                error=error.model_dump() if error else None,
                ended_at=utc_now(),
            )

        return self.database.write(work)

    def record_reused(self, run_id: str, attempt_id: int, *, seq: int, token: str) -> AttemptRecord:
        """Record that a repair takes over an earlier attempt's result.

        The new attempt stands for the old one: same result, same table versions, `reused_from`.

        Raises:
            LeaseLostError: The driver is no longer the run's driver.
        """

        def work(connection: sa.Connection) -> AttemptRecord:
            run = self._lock_run(connection, run_id)
            self._check_driver(connection, run_id, seq, token)
            old = connection.execute(
                sa.select(ATTEMPT).where(ATTEMPT.c.id == attempt_id, ATTEMPT.c.run_id == run_id)
            ).one()
            last = self._latest(connection, run_id, old.task, old.key)
            source = old.reused_from or old.id
            if last is not None and last.repair_seq == seq and last.reused_from == source:
                return attempt_record(last)
            kept = (*_MARK_KEEPS, "result", "log_path", "mlflow_run_id", "reason", "marked_by")
            return self._insert(
                connection,
                run,
                _request_of(old),
                repair_seq=seq,
                state=old.state,
                started_at=old.started_at,
                ended_at=old.ended_at,
                reused_from=source,
                **{name: getattr(old, name) for name in kept},
            )

        return self.database.write(work)

    def mark(
        self,
        run_id: str,
        task: str,
        key: str = "",
        *,
        state: Literal["success", "failed"],
        reason: str,
        user: str,
        result: Any = None,
    ) -> AttemptRecord:
        """Say by hand how a task ended; the mark becomes its latest attempt, with its reason.

        A marked success keeps the tables of the attempt before it. The run's own state follows.

        Raises:
            RunBusyError: The run is alive.
            TaskNotFoundError: The run never had the task.
        """

        def work(connection: sa.Connection) -> AttemptRecord:
            run = self._lock_run(connection, run_id)
            live = self.live_leases(connection, run_id)
            if live:
                raise RunBusyError(
                    run_id=run_id,
                    holders=[title for title, _ in live],
                    wait_s=max(left for _, left in live),
                )
            old = self._latest(connection, run_id, task, key)
            if old is None:
                raise TaskNotFoundError(
                    task=node_name(task, key),
                    where=f"Run {run_id}",
                    defined=self._names(connection, run_id),
                )
            self._end_older(connection, run_id, _request_of(old))
            taken_over = _MARK_KEEPS if state == "success" else _MARK_KEEPS[:2]
            marked = self._insert(
                connection,
                run,
                _request_of(old),
                repair_seq=self._last_repair(connection, run_id).seq,
                state=state,
                reason=reason,
                marked_by=user,
                ended_at=utc_now(),
                **{name: getattr(old, name) for name in taken_over},
                **({} if result is None else {"result": result}),
            )
            # A run that crashed or was cancelled may lack tasks that the ledger never heard of.
            if run.state in ("success", "failed"):
                set_run(connection, run_id, state=run_state(self._states(connection, run_id)))
            return marked

        return self.database.write(work)

    def _names(self, connection: sa.Connection, run_id: str) -> list[str]:
        found = connection.execute(
            sa.select(ATTEMPT.c.task, ATTEMPT.c.key)
            .where(ATTEMPT.c.run_id == run_id)
            .group_by(ATTEMPT.c.task, ATTEMPT.c.key)
            .order_by(sa.func.min(ATTEMPT.c.id))
        )
        return [node_name(task, key) for task, key in found]

    def _states(self, connection: sa.Connection, run_id: str) -> list[Any]:
        """State of the latest attempt of every task and item."""
        found = connection.execute(
            sa.select(ATTEMPT.c.task, ATTEMPT.c.key, ATTEMPT.c.state)
            .where(ATTEMPT.c.run_id == run_id)
            .order_by(ATTEMPT.c.number)
        )
        return list({(task, key): state for task, key, state in found}.values())


def _request_of(row: sa.Row[Any]) -> AttemptRequest:
    return AttemptRequest(
        task=row.task, key=row.key, run_if=row.run_if, depends_on=tuple(row.depends_on)
    )
