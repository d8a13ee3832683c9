"""After a cancel, Ctrl-C or a time-out: what runs ends, clean-up tasks run, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

from headrace.orchestration.held_signals import JOINT_S

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
            start_new_session=True,
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


@pytest.mark.parametrize("how", ["ledger", "interrupt", "terminate", "prefect"])
def test_a_cancel_ends_the_tasks_and_lets_clean_up_run(start, ledger, how):
    process, run, pid = start("long_one()")
    if how == "ledger":
        ledger.request_cancel(run.id)
    elif how == "prefect":
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.prefect_flow_run_id, Cancelling(), force=True)
    else:
        process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)
    process.communicate(timeout=240)
    assert is_gone(pid)
    assert ledger.get_run(run.id).state == "cancelled"
    assert states(ledger, run) == AFTER_CANCEL
    assert prefect_state(run) == "CANCELLED"


@pytest.mark.parametrize("how", ["ledger", "interrupt"])
def test_a_second_cancel_ends_clean_up_too(start, ledger, notes, how):
    process, run, _ = start("long_one(tidy=600)")
    for _ in range(2):
        if how == "ledger":
            ledger.request_cancel(run.id)
        else:
            process.send_signal(signal.SIGINT)
        tidying = wait_for(notes, "tidy", process)
        time.sleep(JOINT_S)  # sooner, it would be the first one, passed on by somebody
    process.communicate(timeout=240)
    assert is_gone(tidying)
    assert ledger.get_run(run.id).state == "cancelled"
    assert states(ledger, run) == {**AFTER_CANCEL, "tidy_up": "cancelled"}


@pytest.mark.parametrize("call", ["long_one()", "long_one_by_hand()"])
def test_a_term_that_comes_several_times_is_one(start, ledger, call):
    """To a whole group, by systemd to every process, and again by a parent that passes it on."""
    process, run, pid = start(call)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGTERM)
    for child in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    for _ in range(20):
        time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=240)
    assert is_gone(pid)
    assert ledger.get_run(run.id).state == "cancelled"
    expected = (
        AFTER_CANCEL if "hand" not in call else {"sleep_long": "cancelled", "tidy_up": "success"}
    )
    assert states(ledger, run) == expected
    assert prefect_state(run) == "CANCELLED"


def test_a_cancel_does_not_wait_for_a_retry_that_is_due_later(start, ledger):
    process, run, _ = start("waiting_to_retry()")
    ledger.request_cancel(run.id)
    process.communicate(timeout=240)
    assert ledger.get_run(run.id).state == "cancelled"
    assert [a.state for a in ledger.attempts(run.id)] == ["failed"]


# Time enough for the task to be up, on a busy machine too.
@pytest.mark.parametrize(("in_task", "limit_s"), [(True, 45), (False, 8)])
def test_a_pipeline_that_takes_too_long_is_ended(project, notes, ledger, in_task, limit_s):
    """In a process of its own: Prefect ends a blocked call by a signal, to a main thread only."""
    call = f"flows.slow.with_options(timeout_seconds={limit_s})({in_task})"
    done = subprocess.run(
        [sys.executable, "-c", f"import condition_flows as flows; {call}"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode != 0
    run = ledger.get_run("last")
    assert run.state == "timed_out", done.stderr[-2000:]
    if in_task:
        assert states(ledger, run) == {"sleep_long": "timed_out", "tidy_up": "success"}
        assert is_gone(int(Path(f"{notes}.pid").read_text()))
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(run.prefect_flow_run_id).state.name == "TimedOut"
