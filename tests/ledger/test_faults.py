"""Real processes that are killed and stopped while they hold leases."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.ledger.records import RepairRequest
from headrace.ledger.store import open_ledger
from tests.ledger.conftest import Driver

HOLDER = Path(__file__).parent / "holder.py"
LEASE_S = 2.0


@pytest.fixture
def holder(url):
    process = subprocess.Popen(
        [sys.executable, str(HOLDER), url, str(LEASE_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def test_a_killed_run_is_found_crashed_and_can_be_repaired(url, holder):
    run_id, _ = holder.stdout.readline().split()
    with open_ledger(url) as ledger:
        holder.send_signal(signal.SIGKILL)
        assert ledger.wait_until_idle(run_id, timeout_s=300)
        assert ledger.get_run(run_id).state == "crashed"
        assert ledger.slots() == {}
        plan = ledger.plan_repair(run_id, RepairRequest())
        assert plan.names("run") == ["t"]
        assert ledger.start_repair(run_id, RepairRequest(), plan=plan, after_seq=0).seq == 1


def test_a_run_that_is_stopped_past_its_lease_exits_and_the_new_result_stays(url, holder):
    run_id, old = holder.stdout.readline().split()
    with open_ledger(url) as ledger:
        holder.send_signal(signal.SIGSTOP)
        assert ledger.wait_until_idle(run_id, timeout_s=300)
        repair = ledger.start_repair(run_id, RepairRequest())
        again = Driver(ledger, ledger.get_run(run_id), repair)
        again.did("t", result="new")
        again.finish()
        holder.stdin.write("finish\n")
        holder.stdin.flush()
        holder.send_signal(signal.SIGCONT)
        said = [holder.stdout.readline().strip() for _ in range(2)]
        assert said == ["refused", "lost"]
        assert ledger.get_attempt(int(old)).state == "crashed"
        assert ledger.latest_attempt(run_id, "t").result == "new"
        assert ledger.get_run(run_id).state == "success"
