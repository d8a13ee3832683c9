"""Real processes are killed, stopped and locked out at random moments: nothing lost, nothing doubled.

Left out unless `--fault-rounds=N` asks for some; `--fault-seed=N` replays the moments of an earlier
run.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest

from headrace.exceptions import HeadraceError
from headrace.orchestration.repair import repair

pytestmark = pytest.mark.prefect

LEASE_S = 6.0
ROWS = 111


def pytest_generate_tests(metafunc):
    if "round_number" in metafunc.fixturenames:
        rounds = metafunc.config.getoption("fault_rounds")
        metafunc.parametrize("round_number", range(rounds))


@pytest.fixture
def chance(request, round_number):
    seed = request.config.getoption("fault_seed")
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    print(f"--fault-seed={seed}")
    return random.Random(f"{seed} {round_number} {request.node.originalname}")


@pytest.fixture
def fragile(project, ledger, notes):
    """A function that starts the pipeline in a process with short leases; its run has begun."""
    processes = []

    def start(table, pause=0.4):
        code = f"import fault_flows; fault_flows.fragile({table!r}, {pause})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=project,
            env={**os.environ, "HEADRACE_LEASE_S": str(LEASE_S)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes.append(process)
        end = time.monotonic() + 240
        while not notes.exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        return process, ledger.get_run("last").id

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def victims(flow_pid, kind):
    """The flow's process, the watchers above its tasks, or the tasks' own processes."""
    flow = psutil.Process(flow_pid)
    if kind == "flow":
        return [flow]
    watchers = [p for p in flow.children() if "headrace.engines._child" in " ".join(p.cmdline())]
    if kind == "supervisor":
        return watchers
    return [child for watcher in watchers for child in watcher.children()]


def repair_until_green(ledger, run_id):
    for _ in range(4):
        assert ledger.wait_until_idle(run_id, timeout_s=300)
        if ledger.get_run(run_id).state == "success":
            return
        try:
            repair(run_id)
        except HeadraceError as error:
            print("repair:", error)
    assert ledger.get_run(run_id).state == "success"


def check_rows(ledger, run_id):
    latest = ledger.latest_attempts(run_id)
    assert latest["count_rows"].result == ROWS
    for name in {attempt.name for attempt in ledger.attempts(run_id)}:
        numbers = [a.number for a in ledger.attempts(run_id) if a.name == name]
        assert numbers == list(range(1, len(numbers) + 1))


def test_whatever_is_killed_a_repair_makes_the_run_whole(fragile, ledger, chance, round_number):
    kind = chance.choice(["flow", "supervisor", "task"])
    wait_s = chance.uniform(0, 3)
    process, run_id = fragile(f"kill{chance.random()}", 0.4)
    time.sleep(wait_s)
    if process.poll() is None:
        hit = victims(process.pid, kind)
        print("after", wait_s, "s killed:", kind, hit)
        for victim in hit:
            victim.kill()
    process.wait(timeout=300)
    repair_until_green(ledger, run_id)
    check_rows(ledger, run_id)


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


def test_a_flow_that_stood_still_past_its_lease_changes_nothing_when_it_goes_on(
    fragile, ledger, project, chance, round_number
):
    process, run_id = fragile(f"stop{chance.random()}", 1.5)
    time.sleep(chance.uniform(0, 2))
    stop_between_writes(process, project / ".headrace" / "ledger.db")
    repair_until_green(ledger, run_id)
    before = ledger.attempts(run_id)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=300) != 0
    assert ledger.attempts(run_id) == before
    assert ledger.get_run(run_id).state == "success"
    check_rows(ledger, run_id)


def test_a_ledger_that_is_locked_for_a_while_costs_no_run(
    fragile, ledger, project, chance, round_number
):
    process, run_id = fragile(f"lock{chance.random()}", 0.4)
    time.sleep(chance.uniform(0, 1))
    connection = sqlite3.connect(project / ".headrace" / "ledger.db", isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("BEGIN EXCLUSIVE")
    time.sleep(LEASE_S / 2)
    connection.execute("COMMIT")
    connection.close()
    process.wait(timeout=300)
    repair_until_green(ledger, run_id)
    check_rows(ledger, run_id)
    assert len(ledger.repairs(run_id)) == 1
