"""`headrace serve` while Prefect and the ledger's database are away, and afterwards."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from tests.orchestration.triggers.serving_project import Project, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]


class Gate:
    """A port that leads to a server, and can be shut as if the server were down.

    Args:
        port: The server's.
    """

    def __init__(self, port):
        self.behind, self.port, self.ends, self.listener = port, 0, [], None

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def shut(self):
        for end in [self.listener, *self.ends]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends.clear()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                outer, _ = listener.accept()
                inner = socket.create_connection(("127.0.0.1", self.behind))
                self.ends += [outer, inner]
                for one, other in ((outer, inner), (inner, outer)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def project(tmp_path, gate, postgres_url, monkeypatch):
    for name in ("HEADRACE_PROJECT", "HEADRACE_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{gate.port}/api")
    monkeypatch.setenv("HEADRACE_LEDGER_URL", postgres_url)
    made = Project(tmp_path / "served", ledger_url=postgres_url)
    yield made
    made.process.send_signal(signal.SIGTERM)
    assert made.process.wait(timeout=60) == 0
    made.ledger.close()


@pytest.fixture
def gate(prefect_url):
    made = Gate(urlsplit(prefect_url).port)
    made.open()
    yield made
    made.shut()


def test_nothing_is_lost_or_doubled_while_prefect_and_the_database_are_away(
    project, gate, postgres_server
):
    def drop(name):
        (project.root / "in" / name).write_text("1")

    project.serve()
    drop("a.csv")
    project.runs("arrive", 1)
    project.runs("follow", 1)

    gate.shut()
    drop("b.csv")
    wait_for(lambda: len(project.ledger.list_runs(pipeline="arrive")) == 2)
    postgres_server.down()
    drop("c.csv")
    time.sleep(5)
    assert project.process.poll() is None
    postgres_server.up()
    # The run that waits for Prefect is the one that may be at work: the next file waits for it.
    assert project.ledger.list_runs(pipeline="arrive")[0].state == "queued"
    gate.open()

    runs = project.runs("arrive", 3)
    assert [run.state for run in runs] == ["success"] * 3
    files = [str(project.root / "in" / f"{letter}.csv") for letter in "cba"]
    assert [run.parameters["files"] for run in runs] == [[file] for file in files]
    followed = project.runs("follow", 3)
    assert {run.parameters["run_id"] for run in followed} == {run.id for run in runs}
    time.sleep(5)
    assert len(project.ledger.list_runs()) == 6
