"""A cancel, Ctrl-C and a killed flow leave no process behind, and a run that can be repaired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from headrace.orchestration.options import RunOptions, use_options
from headrace.orchestration.project import load_project

pytestmark = pytest.mark.prefect


@pytest.fixture
def sleeper(project, notes, ledger):
    """A flow in a process of its own whose task sleeps; gives process, run id and the task's pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sample_flows; sample_flows.sleeper()"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    pid_file = notes.with_name(notes.name + ".pid")
    end = time.monotonic() + 240
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.2)
    yield process, ledger.get_run("last").id, int(pid_file.read_text())
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_until_gone(pid, limit_s=60):
    end = time.monotonic() + limit_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.1)


def test_a_cancel_ends_the_tasks_process_and_the_run(sleeper, ledger):
    process, run_id, pid = sleeper
    assert ledger.request_cancel(run_id)
    process.communicate(timeout=120)
    wait_until_gone(pid)
    run = ledger.get_run(run_id)
    assert run.state == "cancelled"
    assert ledger.latest_attempts(run_id)["sleep_long"].state == "cancelled"


def test_an_interrupt_ends_the_tasks_process_and_the_run(sleeper, ledger):
    process, run_id, pid = sleeper
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    wait_until_gone(pid)
    assert ledger.get_run(run_id).state == "cancelled"


def test_a_killed_flow_takes_its_task_along_and_is_found_crashed(sleeper, ledger, project):
    process, run_id, pid = sleeper
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_until_gone(pid)
    # The lease runs out by the observer's clock: look from later.
    ledger.reap_expired(now=time.monotonic() + 3600)
    assert ledger.get_run(run_id).state == "crashed"
    assert ledger.latest_attempts(run_id)["sleep_long"].state == "crashed"
    with use_options(RunOptions()):
        from headrace.ledger.records import RepairRequest
        from headrace.orchestration.repair import prepare_repair

        planned = prepare_repair(load_project(), run_id, RepairRequest())
    assert planned.plan.names("run") == ["sleep_long"]
