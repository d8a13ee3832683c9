"""A run that things happen to, and what has to be true of it afterwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from deltalake import DeltaTable

from headrace.ledger.records import RunRequest
from headrace.ledger.store import Ledger
from tests.conftest import command_line

LEASE_S = 6.0
ROWS = {"a": 1, "b": 10, "c": 100}
# The machine may be very busy.
PATIENCE_S = 400


def wait_for(look, what="it"):
    end = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.1)
    return found


@dataclass(kw_only=True)
class Fragile:
    """The pipeline `fault_flows.fragile` in processes of its own.

    Attributes:
        project: The sample project.
        ledger: The ledger as this process sees it.
        lake: The folder of the tables, as this process sees it.
        notes: Where the tasks note that they ran.
        log: What the processes print.
        table: Which table they write.
        environment: Variables of the processes.
    """

    project: Path
    ledger: Ledger
    lake: Path
    notes: Path
    log: Path
    table: str
    environment: dict[str, str] = field(default_factory=dict)
    lease_s: float = LEASE_S
    run_id: str = ""
    processes: list[subprocess.Popen] = field(default_factory=list)

    def python(self, *arguments):
        """Start a Python process in the project."""
        given = {**os.environ, "HEADRACE_LEASE_S": str(self.lease_s), **self.environment}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.project,
                env={name: value for name, value in given.items() if value},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def start(self, pause=0.4):
        """Start the pipeline, and wait until its first task is at work."""
        code = f"import fault_flows; fault_flows.fragile({self.table!r}, {pause})"
        process = self.python("-c", code)
        self.wait_for_work(process)
        self.run_id = self.ledger.get_run("last").id
        return process

    def wait(self, pause=0.4):
        """Make a run that waits in the ledger for somebody who serves."""
        request = RunRequest(
            pipeline="fragile",
            entrypoint="fault_flows.fragile",
            parameters={"table": self.table, "pause": pause},
            trigger_key=f"test:manual:{self.table}",
        )
        self.run_id = self.ledger.create_run(request, claim=False)[0].id

    def wait_for_work(self, process):
        def look():
            assert process.poll() is None, self.log.read_text()[-3000:]
            return self.notes.exists()

        wait_for(look, "the first task")

    def repair_until_green(self):
        """Repair as often as it takes, a few times at most; how many passes the run had."""
        for _ in range(4):
            assert self.ledger.wait_until_idle(self.run_id, timeout_s=PATIENCE_S)
            if self.ledger.get_run(self.run_id).state == "success":
                break
            self.python("-m", "headrace", "repair", self.run_id).wait(timeout=PATIENCE_S)
        run = self.ledger.get_run(self.run_id)
        assert run.state == "success", self.log.read_text()[-5000:]
        return len(self.ledger.repairs(self.run_id))

    def check(self):
        """Nothing is lost and nothing doubled, in the table and in the ledger."""
        table = DeltaTable(str(self.lake / "faults" / self.table))
        names = table.to_pyarrow_table().column("x").to_pylist()
        assert Counter(names) == ROWS
        assert table.version() == len(ROWS) - 1
        attempts = self.ledger.attempts(self.run_id)
        latest = self.ledger.latest_attempts(self.run_id)
        assert latest["count_rows"].result == sum(ROWS.values())
        assert set(latest) == {"count_rows", *(f"add_rows/{name}" for name in ROWS)}
        assert {attempt.state for attempt in latest.values()} == {"success"}
        assert self.ledger.open_attempts(self.run_id) == []
        for name in latest:
            numbers = [a.number for a in attempts if a.name == name]
            assert numbers == list(range(1, len(numbers) + 1))
        logs = [a.log_path for a in attempts if a.log_path and a.reused_from is None]
        assert len(logs) == len(set(logs))

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def victims(flow_pid, kind):
    """The flow's process, the watchers above its tasks, or the tasks' own processes."""
    flow = psutil.Process(flow_pid)
    if kind == "flow":
        return [flow]
    watchers = [p for p in flow.children() if "headrace.engines._child" in command_line(p)]
    if kind == "supervisor":
        return watchers
    return [child for watcher in watchers for child in watcher.children()]


def kill(flow_pid, kind):
    """Kill -9; what has ended by itself meanwhile was not there to be killed."""
    with suppress(psutil.NoSuchProcess):
        for victim in victims(flow_pid, kind):
            print("killed:", kind, victim)
            with suppress(psutil.NoSuchProcess):
                victim.kill()


def stop_between_writes(process, database):
    """Stop a process at a moment at which it doesn't hold SQLite's lock, and with it everybody."""
    while True:
        process.send_signal(signal.SIGSTOP)
        connection = sqlite3.connect(database, isolation_level=None, timeout=2)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


def lock(database, seconds):
    """Hold SQLite's exclusive lock."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("BEGIN EXCLUSIVE")
    time.sleep(seconds)
    connection.execute("COMMIT")
    connection.close()
