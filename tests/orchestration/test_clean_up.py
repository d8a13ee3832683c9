"""After a cancel what runs ends, clean-up tasks run, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

pytestmark = pytest.mark.prefect


@pytest.fixture
def start(project, notes, ledger):
    """A function that starts a pipeline in a process of its own and waits until its task is up."""
    processes = []

    def run(call):
        code = f"import condition_flows as flows; flows.{call}"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        pid = wait_for(notes, "pid", process)
        return process, ledger.get_run("last"), pid

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(notes, kind, process):
    """The process id that a task notes once it is up."""
    file = Path(f"{notes}.{kind}")
    end = time.monotonic() + 240
    while not (file.exists() and file.read_text()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.1)
    return int(file.read_text())


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def states(ledger, run):
    return {name: a.state for name, a in ledger.latest_attempts(run.id).items()}


AFTER_CANCEL = {"sleep_long": "cancelled", "tidy_up": "success", "after/never": "upstream_failed"}


def prefect_state(run):
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run.prefect_flow_run_id).state.type.value


@pytest.mark.parametrize("how", ["ledger", "terminate", "prefect"])
def test_a_cancel_ends_the_tasks_and_lets_clean_up_run(start, ledger, how):
    process, run, pid = start("long_one()")
    if how == "ledger":
        ledger.request_cancel(run.id)
    elif how == "prefect":
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.prefect_flow_run_id, Cancelling(), force=True)
    else:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert is_gone(pid)
    assert ledger.get_run(run.id).state == "cancelled"
    assert states(ledger, run) == AFTER_CANCEL
    assert prefect_state(run) == "CANCELLED"
