"""A project whose runs are made and not started: triggers, watchers and the ledger are the real ones."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headrace.ledger.store import open_ledger
from headrace.orchestration.project import Project
from headrace.orchestration.triggers.serve import Serving
from headrace.orchestration.triggers.watchers import Served, Surroundings
from headrace.profiles.models import Environment
from headrace.triggers.policy import make_policy
from tests.ledger.conftest import postgres_server, postgres_url, sqlite_url, url

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "url"]


@contextmanager
def webhook_receiver():
    """What a webhook was told, and its address."""
    told = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")  # Slack's own word

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield told, f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()


class Hands:
    """Drives runs by hand: claims a run when it is started, ends it when it is told to."""

    def __init__(self, ledger, *, ends: str | None = "success"):
        self.ledger, self.ends = ledger, ends
        self.started = []

    def start(self, run) -> bool:
        repair = self.ledger.claim_repair(run.id)
        self.started.append(run)
        if self.ends:
            self.end(run, self.ends, repair)
        return True

    def end(self, run, state="success", repair=None):
        repair = repair or self.ledger.current_repair(run.id)
        self.ledger.finish_run(run.id, 0, state, token=repair.token)

    def starting(self, waiting) -> Counter:
        return Counter()


class World:
    """A clock that the test moves, and what serves under it."""

    def __init__(self, root: Path, url: str, *, lake: str = "", **environment):
        self.now = datetime(2024, 1, 1, tzinfo=UTC)
        self.seconds = 1000.0
        made = Environment(
            name="local",
            source=root / "local.toml",
            root=root,
            lake=lake or str(root / "lake"),
            ledger_url=url,
            **environment,
        )
        (root / ".headrace").mkdir(parents=True, exist_ok=True)
        self.project = Project(root=root, state=root / ".headrace", environment=made)
        self.ledger = open_ledger(url)
        self.hands = Hands(self.ledger)

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def around(self, ledger=None) -> Surroundings:
        return Surroundings(
            project=self.project,
            ledger=ledger or self.ledger,
            now=lambda: self.now,
            clock=lambda: self.seconds,
        )

    def serve(self, *pipelines, ledger=None) -> Serving:
        return Serving(self.around(ledger), pipelines, self.hands)

    def runs(self, pipeline="p"):
        return sorted(
            self.ledger.list_runs(limit=1000, pipeline=pipeline), key=lambda run: run.number
        )


def served(*triggers, name="p", function=None, **options) -> Served:
    def flow(
        time: str = "",
        files: list[str] = [],  # noqa: B006
        version: int = -1,
        since: int = -1,
        run_id: str = "",
        number: int = 0,
    ) -> None: ...

    policy = make_policy(function or flow, name, {"triggers": triggers, **options})
    return Served(name=name, entrypoint=f"flows.{name}.{name}", policy=policy)


@pytest.fixture
def world(tmp_path, sqlite_url):
    made = World(tmp_path, sqlite_url)
    yield made
    made.ledger.close()
