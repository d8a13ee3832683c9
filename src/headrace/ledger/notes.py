"""Writing what comes up while a run is at work: a wish to cancel, ids elsewhere, a process id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from headrace.ledger.attempts import lost_attempt
from headrace.ledger.base import ATTEMPT, REPAIR, LedgerBase, set_run
from headrace.ledger.rows import utc_now

_LINKS = ("pid", "log_path", "mlflow_run_id", "prefect_task_run_id", "usage")


class NoteStore(LedgerBase):
    """The part of the ledger that writes notes."""

    def request_cancel(self, run_id: str) -> bool:
        """Ask the run's driver to stop; a run that waits is cancelled at once.

        The first request lets clean-up tasks run; a second one ends those too.

        Returns:
            Whether there was something to cancel.
        """
        now = utc_now()

        def work(connection: sa.Connection) -> bool:
            self._lock_run(connection, run_id)
            row = self._last_repair(connection, run_id)
            if row.state == "queued":
                values: dict[str, Any] = {"state": "cancelled", "ended_at": now}
                set_run(connection, run_id, **values)
            elif row.state == "running":
                values = {}
            else:
                return row.cancel_requested_at is not None and row.state == "cancelled"
            connection.execute(
                sa.update(REPAIR)
                .where(REPAIR.c.id == row.id)
                .values(cancel_requested_at=now, **values)
            )
            return True

        return self.database.write(work)

    def cancel_requested(self, run_id: str) -> bool:
        """Whether somebody asked the run's latest repair to stop."""
        return self.cancel_asked_at(run_id) is not None

    def cancel_asked_at(self, run_id: str) -> datetime | None:
        """When somebody last asked the run's latest repair to stop; another time is a new wish."""
        row = self.database.read(lambda c: self._last_repair(c, run_id))
        asked: datetime | None = row.cancel_requested_at
        return asked

    def annotate_run(
        self,
        run_id: str,
        *,
        mlflow_run_id: str | None = None,
        prefect_flow_run_id: str | None = None,
    ) -> None:
        """Note the run's ids elsewhere; None leaves what is there."""
        values = _given(mlflow_run_id=mlflow_run_id, prefect_flow_run_id=prefect_flow_run_id)
        if values:
            self.database.write(lambda c: set_run(c, run_id, **values))

    def annotate_repair(self, repair_id: int, *, prefect_flow_run_id: str) -> None:
        """Note the Prefect flow run that shows this repair."""
        self.database.write(
            lambda c: c.execute(
                sa.update(REPAIR)
                .where(REPAIR.c.id == repair_id)
                .values(prefect_flow_run_id=prefect_flow_run_id)
            )
        )

    def annotate_attempt(self, attempt_id: int, token: str, **links: Any) -> None:
        """Note what becomes known while an attempt runs.

        Args:
            attempt_id: The attempt.
            token: Its fence token.
            links: Any of `pid`, `log_path`, `mlflow_run_id`, `prefect_task_run_id`, `usage`.

        Raises:
            LeaseLostError: The attempt was found dead.
        """
        unknown = set(links) - set(_LINKS)
        if unknown:
            raise TypeError(f"annotate_attempt() has no {sorted(unknown)}; it has {_LINKS}")

        def work(connection: sa.Connection) -> None:
            done = connection.execute(
                sa.update(ATTEMPT)
                .where(ATTEMPT.c.id == attempt_id, ATTEMPT.c.token == token)
                .values(**links)
            )
            if not done.rowcount:
                raise lost_attempt(connection, attempt_id)

        if links:
            self.database.write(work)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
