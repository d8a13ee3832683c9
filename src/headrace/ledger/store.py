"""`open_ledger`: the one way to the ledger, on SQLite and on PostgreSQL."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headrace.ledger.database import RETRY_S, Database
from headrace.ledger.leases import Clock, LeaseWatch, own_clock
from headrace.ledger.marks import MarkStore
from headrace.ledger.migrate import upgrade
from headrace.ledger.notes import NoteStore
from headrace.ledger.notices import NoticeStore
from headrace.ledger.queries import ReadStore
from headrace.ledger.trigger_queries import TriggerReadStore
from headrace.ledger.triggers import TriggerStore
from headrace.ledger.usage import UsageStore


class Ledger(
    TriggerStore, TriggerReadStore, MarkStore, NoteStore, NoticeStore, UsageStore, ReadStore
):
    """The truth about runs. Safe to use from many threads; each process opens its own.

    Example:
        >>> from headrace.ledger.records import RunRequest
        >>> from tempfile import mkdtemp
        >>> with open_ledger(f"sqlite:///{mkdtemp()}/ledger.db") as ledger:
        ...     run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="flows.p.p"))
        ...     ledger.finish_run(run.id, 0, "success", token=repair.token).state
        'success'
    """

    def close(self) -> None:
        """Let go of the connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_ledger(url: str, *, retry_s: float = RETRY_S, clock: Clock | None = None) -> Ledger:
    """Open the ledger; the first opener makes its tables, or brings them up to date.

    Args:
        url: `sqlite:///PATH` or `postgresql://user:password@host/database`.
        retry_s: How long an operation keeps trying while the ledger is locked or gone.
        clock: The clock that leases are measured with, if not this process's own.

    Raises:
        LedgerAddressError: The address is of another kind.
        LedgerTooNewError: A newer headrace wrote it.
        LedgerUnavailableError: It can't be reached or written.
    """
    database = Database(url, retry_s=retry_s)
    try:
        upgrade(database)
    except BaseException:
        database.close()
        raise
    watch = LeaseWatch(clock=clock or own_clock(), one_machine=database.is_sqlite)
    return Ledger(database, watch)
