"""A ledger on each kind of database, with a clock that the test moves."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from headrace.ledger.leases import Clock
from headrace.ledger.records import AttemptRequest, Outcome, RunRequest
from headrace.ledger.store import open_ledger
from tests.ledger.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    server = PostgresServer.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server):
    """The address of an empty ledger on PostgreSQL."""
    # A schema is a ledger of its own too, and far cheaper than a database.
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres_server.url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
    engine.dispose()
    return f"{postgres_server.url('postgres')}?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The address of an empty ledger of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/led ger é/ledger.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/ledger.db"


@dataclass
class FakeTime:
    """A monotonic clock that stands until it is moved, and its twins on other boots."""

    now: float = 1000.0
    clocks: dict[str, Clock] = field(default_factory=dict)

    def clock(self, boot: str = "here") -> Clock:
        return Clock(id=f"{boot}/ns", now=lambda: self.now)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake_time():
    return FakeTime()


@pytest.fixture
def ledger(url, fake_time):
    with open_ledger(url, retry_s=20, clock=fake_time.clock()) as opened:
        yield opened


class Driver:
    """Drives one run as a flow would."""

    def __init__(self, ledger, run=None, repair=None, **request):
        self.ledger = ledger
        if run is None:
            values = {"pipeline": "p", "entrypoint": "flows.p.p", **request}
            run, repair = ledger.create_run(RunRequest(**values))
        self.run, self.repair = run, repair

    @property
    def id(self):
        return self.run.id

    def start(self, task, key="", **request):
        return self.ledger.start_attempt(
            self.run.id,
            AttemptRequest(task=task, key=key, **request),
            seq=self.repair.seq,
            token=self.repair.token,
        )

    def did(self, task, state="success", key="", **outcome):
        attempt = self.start(
            task, key, **{k: outcome.pop(k) for k in ("depends_on", "run_if") if k in outcome}
        )
        return self.ledger.finish_attempt(
            attempt.id, attempt.token, Outcome(state=state, **outcome)
        )

    def skip(self, task, state="upstream_failed", reason="", **request):
        return self.ledger.record_skipped(
            self.run.id,
            AttemptRequest(task=task, **request),
            state,
            seq=self.repair.seq,
            token=self.repair.token,
            reason=reason,
        )

    def finish(self, state="success"):
        return self.ledger.finish_run(self.run.id, self.repair.seq, state, token=self.repair.token)


@pytest.fixture
def drive(ledger):
    def start(**request):
        return Driver(ledger, **request)

    return start
