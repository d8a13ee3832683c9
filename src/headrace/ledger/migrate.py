"""Bring the ledger's schema up to this version of headrace, once, whoever comes first."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import sqlalchemy as sa

from headrace.exceptions import LedgerTooNewError, LedgerUnavailableError
from headrace.ledger.database import Database

REVISIONS = ("0001", "0002")
"""Every schema that this headrace knows, oldest first."""

# Any number will do, as long as nothing else on the server uses it.
_ADVISORY_LOCK = 0x68656164
# Alembic keeps the step that it runs in globals: one upgrade at a time in a process.
_alembic = threading.Lock()


def upgrade(database: Database) -> None:
    """Make the ledger's tables, or bring older ones up to date.

    Raises:
        LedgerTooNewError: A newer headrace made them.
        LedgerUnavailableError: The folder or the server can't be used.
    """
    if database.is_sqlite:
        _create_file(database)
    if database.read(lambda c: _current(c, database)) != REVISIONS[-1]:
        database.write(lambda c: _upgrade(c, database))


def _create_file(database: Database) -> None:
    """Make an empty database file if there is none; `Database` itself never makes one."""
    if database.path.exists():
        return
    try:
        database.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        sqlite3.connect(database.path).close()
        database.path.touch()
    except (OSError, sqlite3.Error) as error:
        raise LedgerUnavailableError(
            address=database.address, waited_s=0, cause=str(error)
        ) from error


def _current(connection: sa.Connection, database: Database) -> str | None:
    """The revision in the database, or None when it is empty."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(
        sa.text("SELECT version_num FROM alembic_version")
    ).scalar()
    if found is not None and found not in REVISIONS:
        raise LedgerTooNewError(address=database.address, revision=found, known=REVISIONS[-1])
    return found


def _upgrade(connection: sa.Connection, database: Database) -> None:
    """Run the missing steps while holding the write lock; the second opener finds none."""
    if not database.is_sqlite:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    if _current(connection, database) == REVISIONS[-1]:
        return
    # Alembic costs 0.4 s to import, and only the first opener needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).parent / "migrations").replace("%", "%%")
    )
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, "head")
