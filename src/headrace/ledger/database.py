"""The ledger's database: transactions that wait, retry, and give up in bounded time."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import QueuePool

from headrace.exceptions import LedgerAddressError, LedgerUnavailableError

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_S = 60.0
"""How long an operation keeps trying while the ledger is locked or gone."""

_BUSY_S = 5.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
# SQLSTATE classes and codes after which the same transaction may succeed.
_PASSING_SQLSTATES = ("08", "57P", "53", "40001", "40P01", "55P03", "25006")
_PASSING_SQLITE = ("locked", "busy", "unable to open", "disk i/o", "disk is full", "no such table")


class Database:
    """A pool of connections, with `read` and `write` as its only doors.

    Args:
        url: `sqlite:///PATH` or `postgresql://...`.
        retry_s: How long an operation keeps trying.

    Raises:
        LedgerAddressError: The address is of another kind.
    """

    def __init__(self, url: str, *, retry_s: float = RETRY_S) -> None:
        self.url = parse_url(url)
        self.retry_s = retry_s
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = self._sqlite_engine() if self.is_sqlite else self._postgres_engine()
        self._writing = self.engine.execution_options(headrace_write=True)
        # Writers of this process queue here, which is fairer than SQLite's busy polling.
        self._writers = threading.Lock()

    @property
    def address(self) -> str:
        """The address without its password."""
        return self.url.render_as_string(hide_password=True)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return Path(self.url.database or "")

    def read(self, work: Callable[[sa.Connection], T], *, patience_s: float | None = None) -> T:
        """Run `work` on one consistent view of the ledger."""
        return self._patiently(lambda: self._transact(work, write=False), patience_s)

    def write(self, work: Callable[[sa.Connection], T], *, patience_s: float | None = None) -> T:
        """Run `work` in a transaction that is committed whole or not at all.

        `work` may run more than once: a commit whose answer got lost is tried again, so it has to
        recognise its own rows by a token or an id that the caller made.

        Args:
            work: Is given the connection.
            patience_s: Instead of the ledger's own limit.

        Raises:
            LedgerUnavailableError: The ledger stayed locked or gone.
        """
        return self._patiently(lambda: self._transact(work, write=True), patience_s)

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()

    def _transact(self, work: Callable[[sa.Connection], T], *, write: bool) -> T:
        if not (write and self.is_sqlite):
            with self.engine.begin() as connection:
                return work(connection)
        with self._writers, self._writing.begin() as connection:
            return work(connection)

    def _patiently(self, attempt: Callable[[], T], patience_s: float | None) -> T:
        patience = self.retry_s if patience_s is None else patience_s
        start = time.monotonic()
        pause = _FIRST_PAUSE_S
        told = False
        while True:
            try:
                return attempt()
            except (exc.DBAPIError, exc.TimeoutError) as error:
                waited = time.monotonic() - start
                if not may_pass(error) or waited + pause > patience:
                    if isinstance(error, (exc.IntegrityError, exc.ProgrammingError, exc.DataError)):
                        raise
                    raise LedgerUnavailableError(
                        address=self.address, waited_s=round(waited, 1), cause=_first_line(error)
                    ) from error
                if not told and _is_full(error):
                    logger.warning("The ledger waits: no space left for %s.", self.address)
                    told = True
            # Jitter keeps fifty processes from knocking at the same moments.
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _sqlite_engine(self) -> sa.Engine:
        path = self.path

        def connect() -> sqlite3.Connection:
            # mode=rw: a ledger that is gone for a moment must not be replaced by an empty one.
            return sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )

        engine = sa.create_engine(
            "sqlite://", creator=connect, poolclass=QueuePool, max_overflow=20, pool_timeout=_BUSY_S
        )
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin)
        return engine

    def _postgres_engine(self) -> sa.Engine:
        return sa.create_engine(
            self.url,
            pool_pre_ping=True,
            max_overflow=20,
            pool_timeout=_BUSY_S,
            connect_args={"connect_timeout": 10, "application_name": "headrace"},
        )


def parse_url(url: str) -> URL:
    """Read and check a ledger's address.

    Raises:
        LedgerAddressError: It is neither an SQLite file nor a PostgreSQL database.
    """
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise LedgerAddressError(found="something that is not an address") from error
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise LedgerAddressError(found=parsed.render_as_string(hide_password=True))


def may_pass(error: exc.SQLAlchemyError) -> bool:
    """Whether the trouble may be over by itself: locked, gone, restarting, full."""
    if isinstance(error, exc.TimeoutError):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_PASSING_SQLSTATES)
    text = str(error.orig).lower()
    if isinstance(error.orig, sqlite3.Error):
        return any(word in text for word in _PASSING_SQLITE)
    # psycopg has no SQLSTATE when there was no server to give one.
    return isinstance(error, (exc.OperationalError, exc.InterfaceError))


def _is_full(error: exc.SQLAlchemyError) -> bool:
    """Whether only somebody who frees space can help."""
    cause = getattr(error, "orig", None)
    return getattr(cause, "sqlstate", None) == "53100" or "disk is full" in str(cause).lower()


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return (str(cause).splitlines() or [type(cause).__name__])[0]


def _set_pragmas(connection: Any, _record: Any) -> None:
    """WAL lets readers and one writer work at once; FULL survives a power cut after a commit."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    """Take SQLite's write lock at the start, where waiting works, not in mid-transaction."""
    write = connection.get_execution_options().get("headrace_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
