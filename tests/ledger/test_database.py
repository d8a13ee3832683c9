from __future__ import annotations

import pickle
import sqlite3
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.exceptions import LedgerAddressError, LedgerTooNewError, LedgerUnavailableError
from headrace.ledger import migrate, schema
from headrace.ledger.database import Database, may_pass
from headrace.ledger.records import RunRequest
from headrace.ledger.store import open_ledger

REQUEST = RunRequest(pipeline="p", entrypoint="e")


def test_the_first_opener_makes_the_tables_and_the_next_finds_them(url):
    with open_ledger(url) as ledger:
        run, _ = ledger.create_run(REQUEST)
    for _ in range(2):
        with open_ledger(url) as ledger:
            assert ledger.get_run(run.id).id == run.id
            ledger.database.write(lambda c: migrate._upgrade(c, ledger.database))


def test_many_first_openers_at_once_are_fine(url):
    errors, ready = [], threading.Barrier(8)

    def work():
        try:
            ready.wait()
            with open_ledger(url) as ledger:
                ledger.create_run(REQUEST)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_ledger(url) as ledger:
        assert len(ledger.list_runs()) == 8


def test_the_migrations_make_what_the_code_expects(url):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with open_ledger(url) as ledger, ledger.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        for table in schema.metadata.tables.values():
            found = {index["name"] for index in sa.inspect(connection).get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= found


def test_the_known_revisions_are_those_of_the_migrations():
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations"))
    assert [step.revision for step in script.walk_revisions()][::-1] == list(migrate.REVISIONS)


def test_a_ledger_of_a_newer_headrace_is_left_alone(url):
    with open_ledger(url) as ledger:
        ledger.database.write(
            lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num='9999'"))
        )
    with pytest.raises(LedgerTooNewError, match="newer") as caught:
        open_ledger(url)
    assert caught.value.revision == "9999"
    assert "Fix:" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).revision == "9999"


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://u:secret@h/d", "/a/path.db"]
)
def test_another_kind_of_address_is_refused_without_its_password(url):
    with pytest.raises(LedgerAddressError, match="sqlite:///") as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)


def test_a_ledger_that_cannot_be_reached_says_so_without_its_password():
    with pytest.raises(LedgerUnavailableError) as caught:
        open_ledger("postgresql://headrace:secret@127.0.0.1:1/none", retry_s=0.2)
    assert "secret" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)


def test_a_folder_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailableError, match="ledger"):
        open_ledger(f"sqlite:///{tmp_path}/file/ledger.db", retry_s=0.2)


def test_a_file_that_is_no_database_says_so(tmp_path):
    (tmp_path / "ledger.db").write_text("not a database" * 1000)
    with pytest.raises(LedgerUnavailableError, match="not a database"):
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_locked_ledger_is_waited_for(sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.ledger.database._BUSY_S", 0.01)
    with open_ledger(sqlite_url) as ledger:
        other = sqlite3.connect(
            tmp_path / "ledger.db", isolation_level=None, check_same_thread=False
        )
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.5, lambda: other.execute("COMMIT"))
        release.start()
        run, _ = ledger.create_run(REQUEST)
        release.join()
        assert ledger.get_run(run.id)
        other.close()


def test_a_locked_ledger_is_given_up_in_bounded_time_but_read(sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.ledger.database._BUSY_S", 0.01)
    with open_ledger(sqlite_url, retry_s=0.3) as ledger:
        run, _ = ledger.create_run(REQUEST)
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailableError, match="locked"):
            ledger.create_run(REQUEST)
        with pytest.raises(LedgerUnavailableError):
            ledger.renew_driver(1, "t", patience_s=0.0)
        assert ledger.get_run("last").id == run.id
        other.close()


def test_a_ledger_that_is_gone_for_a_while_is_never_replaced_by_an_empty_one(sqlite_url, tmp_path):
    with open_ledger(sqlite_url) as ledger:
        run, repair = ledger.create_run(REQUEST)
        ledger.close()
        home, away = tmp_path / "ledger.db", tmp_path / "away.db"
        home.rename(away)
        back = threading.Timer(0.5, lambda: away.rename(home))
        back.start()
        ledger.finish_run(run.id, 0, "success", token=repair.token)
        back.join()
        assert ledger.get_run(run.id).state == "success"
    assert not away.exists()


def test_a_server_that_restarts_costs_nothing_but_time(postgres_server):
    with open_ledger(postgres_server.url("postgres")) as ledger:
        run, repair = ledger.create_run(REQUEST)
        postgres_server.down()
        answers = []

        def work():
            ledger.renew_driver(repair.id, repair.token)
            answers.append(ledger.finish_run(run.id, 0, "success", token=repair.token).state)

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(0.5)
        postgres_server.up()
        worker.join()
        assert answers == ["success"]


@pytest.mark.parametrize(
    "method", ["create_run", "start_attempt", "start_repair", "finish_attempt"]
)
def test_a_commit_whose_answer_is_lost_is_not_made_twice(url, method, monkeypatch):
    """The transaction is committed, and then the connection breaks before the answer comes."""
    from headrace.ledger.records import AttemptRequest, Outcome, RepairRequest

    with open_ledger(url) as ledger:
        run, repair = ledger.create_run(REQUEST)
        attempt = ledger.start_attempt(run.id, AttemptRequest(task="a"), seq=0, token=repair.token)
        done, _ = ledger.create_run(REQUEST)
        ledger.finish_run(done.id, 0, "failed", token=ledger.current_repair(done.id).token)
        transact, lost = Database._transact, [True]

        def broken(self, work, *, write):
            answer = transact(self, work, write=write)
            if write and lost and lost.pop():
                raise sa.exc.OperationalError(
                    "COMMIT", {}, sqlite3.OperationalError("disk I/O error")
                )
            return answer

        monkeypatch.setattr(Database, "_transact", broken)
        before = len(ledger.list_runs()), len(ledger.attempts(run.id)), len(ledger.repairs(done.id))
        if method == "create_run":
            ledger.create_run(REQUEST)
        elif method == "start_attempt":
            ledger.start_attempt(run.id, AttemptRequest(task="b"), seq=0, token=repair.token)
        elif method == "start_repair":
            assert ledger.start_repair(done.id, RepairRequest(), after_seq=0).token
        else:
            ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success"))
        after = len(ledger.list_runs()), len(ledger.attempts(run.id)), len(ledger.repairs(done.id))
        grown = {"create_run": (1, 0, 0), "start_attempt": (0, 1, 0), "start_repair": (0, 0, 1)}
        assert tuple(b - a for a, b in zip(before, after, strict=True)) == grown.get(
            method, (0, 0, 0)
        )
        assert not lost


def test_a_folder_that_cannot_be_written_says_so():
    with pytest.raises(LedgerUnavailableError):
        open_ledger("sqlite:////proc/headrace/ledger.db")


def test_a_full_disk_is_named_at_once_and_after_the_wait(sqlite_url, caplog):
    with open_ledger(sqlite_url, retry_s=0.2) as ledger:
        ledger.create_run(REQUEST)
        with ledger.database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        sa.event.listen(
            ledger.database.engine,
            "checkout",
            lambda raw, *_: raw.execute(f"PRAGMA max_page_count={pages}"),
        )
        big = REQUEST.model_copy(update={"parameters": {"x": "y" * 100_000}})
        with pytest.raises(LedgerUnavailableError, match="full"):
            ledger.create_run(big)
        assert caplog.text.count("no space left") == 1
        assert len(ledger.list_runs()) == 1


def test_a_mistake_in_a_statement_is_not_retried():
    wrong = sa.exc.OperationalError("SELECT", {}, sqlite3.OperationalError("no such column: x"))
    assert not may_pass(wrong)
    assert may_pass(sa.exc.TimeoutError())
    assert not may_pass(sa.exc.ArgumentError())


def test_a_long_reader_does_not_stop_a_writer(sqlite_url):
    with open_ledger(sqlite_url) as ledger:
        ledger.create_run(REQUEST)
        reading, written = threading.Event(), threading.Event()

        def slow(connection):
            first = connection.execute(sa.select(schema.run)).all()
            reading.set()
            assert written.wait(30)
            time.sleep(0.01)
            return first, connection.execute(sa.select(schema.run)).all()

        seen = []
        reader = threading.Thread(target=lambda: seen.append(ledger.database.read(slow)))
        reader.start()
        assert reading.wait(30)
        ledger.create_run(REQUEST)
        written.set()
        reader.join()
        assert seen[0][0] == seen[0][1]
        assert len(ledger.list_runs()) == 2
