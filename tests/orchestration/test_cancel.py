"""A cancel, Ctrl-C and a killed flow leave no process behind, and a run that can be repaired."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headrace.exceptions import RunBusyError
from headrace.orchestration.options import RunOptions, use_options
from headrace.orchestration.project import load_project
from headrace.orchestration.repair import repair
from tests.orchestration.conftest import command_lines

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
    pid = wait_for_pid(notes, process)
    yield process, ledger.get_run("last").id, pid
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_for_pid(notes, process):
    """The process of the task that sleeps, once it is up."""
    file = notes.with_name(notes.name + ".pid")
    end = time.monotonic() + 240
    while not (file.exists() and file.read_text()):
        assert process.poll() is None, process.stdout.closed or process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.2)
    return int(file.read_text())


def wait_until_gone(pid, limit_s=60):
    end = time.monotonic() + limit_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.1)


def test_a_cancel_ends_the_tasks_process_and_the_run(sleeper, ledger):
    process, run_id, pid = sleeper
    with pytest.raises(RunBusyError, match="still at work"):
        repair(run_id)
    assert ledger.request_cancel(run_id)
    process.communicate(timeout=120)
    wait_until_gone(pid)
    run = ledger.get_run(run_id)
    assert run.state == "cancelled"
    assert ledger.latest_attempts(run_id)["sleep_long"].state == "cancelled"


@pytest.mark.parametrize("call", ["add_up", "sleeper"])
def test_a_run_goes_on_when_nobody_reads_what_it_prints(project, notes, ledger, call):
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", f"sample_flows.{call}", "--verbose"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    if call == "sleeper":
        pid = wait_for_pid(notes, process)
        ledger.request_cancel(ledger.get_run("last").id)
        wait_until_gone(pid)
    code = process.wait(timeout=240)
    assert (code, ledger.get_run("last").state) == {
        "add_up": (0, "success"),
        "sleeper": (1, "cancelled"),
    }[call]


@pytest.mark.parametrize(
    "engine",
    [pytest.param("spark", marks=pytest.mark.spark), pytest.param("ray", marks=pytest.mark.ray)],
)
def test_a_cancel_ends_the_engine_that_the_tasks_share_and_a_process_that_is_deaf(
    project, notes, ledger, engine
):
    process = subprocess.Popen(
        [sys.executable, "-c", f"import engine_flows; engine_flows.busy_{engine}()"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = time.monotonic() + 300
    try:
        while not all(Path(f"{notes}.{kind}").exists() for kind in ("deaf", "worker")):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.2)
        below = psutil.Process(process.pid).children(recursive=True)
        names = " ".join(command_lines(process.pid))
        assert {"spark": "connect", "ray": "raylet"}[engine] in names
        noted = [int(pid) for kind in ("deaf", "worker") for pid in lines_of(f"{notes}.{kind}")]
        run = ledger.get_run("last")
        assert ledger.request_cancel(run.id)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    for pid in {*noted, *(child.pid for child in below)}:
        wait_until_gone(pid)
    assert ledger.get_run(run.id).state == "cancelled"
    assert ledger.latest_attempts(run.id)[f"busy_{engine}"].state == "cancelled"


def lines_of(path):
    return Path(path).read_text().split()


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
