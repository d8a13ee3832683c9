"""Everything that an attempt starts is ended with it, whatever it does; nothing else is."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from headrace.engines.process_tree import read_process
from headrace.engines.supervised import end_leftovers
from headrace.exceptions import MemoryLimitError, TaskCancelledError, TaskCrashedError

# Each starts one process that tries to get away, and notes its id in the file `pids`.
STUBBORN = """
    import os, signal, subprocess, sys, time

    def note(pid):
        with open("pids", "a") as handle:
            handle.write(f"{pid}\\n")

    SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
    DEAF = [sys.executable, "-c",
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]

    def double_fork(command):
        # Lost its parent, has a session of its own, an empty environment, and ignores TERM.
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note(os.getpid())
                os.execve(command[0], command, {})
            os._exit(0)

    def start_all():
        note(subprocess.Popen(SLEEP).pid)
        note(subprocess.Popen(SLEEP, start_new_session=True).pid)
        note(subprocess.Popen(DEAF, start_new_session=True).pid)
        double_fork(DEAF)
        stopped = subprocess.Popen(SLEEP)
        note(stopped.pid)
        os.kill(stopped.pid, signal.SIGSTOP)
        while len(open("pids").readlines()) < 5:
            time.sleep(0.01)
        time.sleep(0.3)

    def job(after="wait"):
        start_all()
        note(os.getpid())
        if after == "wait":
            time.sleep(600)
        if after == "die":
            os.kill(os.getpid(), 9)
        return "done"
"""


def pids(project, *, count=6, wait_s=60):
    file = project.root / "pids"
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        found = file.read_text().split() if file.exists() else []
        if len(found) >= count:
            return [int(text) for text in found]
        time.sleep(0.05)
    raise AssertionError("the task did not start its processes")


def alive(numbers):
    found = [read_process(pid) for pid in numbers]
    return [process for process in found if process and process.state not in "ZX"]


def wait_until_gone(numbers, wait_s=30):
    until = time.monotonic() + wait_s
    while alive(numbers) and time.monotonic() < until:
        time.sleep(0.05)
    assert alive(numbers) == []


@pytest.fixture
def bystander():
    """A process that has nothing to do with the attempt."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    assert process.poll() is None
    process.kill()
    process.wait()


def test_cancel_ends_all_that_the_attempt_started(project, bystander):
    cancel = threading.Event()

    def press():
        pids(project)
        cancel.set()

    threading.Thread(target=press).start()
    with pytest.raises(TaskCancelledError):
        project.run(STUBBORN, cancel=cancel, grace_s=0.5)
    assert alive(pids(project)) == []


def test_what_a_task_leaves_running_ends_with_it_and_its_result_counts(project, bystander):
    result = project.run(STUBBORN, arguments={"after": "return"})
    assert result.value == "done"
    assert alive(pids(project)) == []


def test_what_a_killed_task_leaves_running_ends_too(project, bystander):
    with pytest.raises(TaskCrashedError, match="SIGKILL"):
        project.run(STUBBORN, arguments={"after": "die"})
    assert alive(pids(project)) == []


def test_a_killed_supervisor_takes_its_attempt_with_it(project, bystander):
    def kill():
        task = psutil.Process(pids(project)[-1])
        time.sleep(1)  # the flow's process looks at the tree twice a second
        task.parent().kill()

    threading.Thread(target=kill).start()
    with pytest.raises(TaskCrashedError):
        project.run(STUBBORN, grace_s=0.5)
    assert alive(pids(project)) == []


FLOW = """
    import sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from conftest import Project
    print(Project(Path({root!r})).run(Path({job!r}).read_text(), **{options!r}))
"""


def start_flow(project, **options):
    """A flow's process of its own that runs the stubborn task."""
    job = project.root / "source.txt"
    job.write_text(textwrap.dedent(STUBBORN))
    code = textwrap.dedent(FLOW).format(
        tests=str(Path(__file__).parent), root=str(project.root), job=str(job), options=options
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_killed_flow_takes_its_attempts_with_it(project, bystander):
    flow = start_flow(project, grace_s=0.5)
    started = pids(project)
    flow.kill()
    flow.communicate()
    wait_until_gone(started)
    (folder,) = (project.root / ".headrace/runs/run1/job").iterdir()
    assert not (folder / "result.json").exists()


def test_what_outlives_a_killed_flow_and_supervisor_can_be_ended_later(project, bystander):
    flow = start_flow(project)
    started = pids(project)
    time.sleep(1)  # the flow's process looks at the tree twice a second
    supervisor = psutil.Process(started[-1]).parent()
    supervisor.suspend()
    flow.kill()
    supervisor.kill()
    flow.communicate()
    assert len(alive(started)) >= 4
    (folder,) = (project.root / ".headrace/runs/run1/job").iterdir()
    assert end_leftovers(folder, grace_s=0.5) == 0
    assert alive(started) == []
    assert end_leftovers(folder) == 0


def test_an_attempt_whose_flow_stands_still_past_its_lease_ends_itself(project, bystander):
    flow = start_flow(project, grace_s=0.5, lease_s=1.5)
    started = pids(project)
    flow.send_signal(signal.SIGSTOP)
    wait_until_gone(started)
    flow.send_signal(signal.SIGCONT)
    output, _ = flow.communicate(timeout=60)
    assert "stood still for longer than its lease" in output


def test_the_memory_limit_counts_all_processes_and_names_the_profiles_setting(project):
    with pytest.raises(MemoryLimitError) as raised:
        project.run(
            """
            import subprocess, sys, time

            CODE = "x = bytearray(90 * 2**20); import time; time.sleep(600)"

            def job():
                for _ in range(3):
                    subprocess.Popen([sys.executable, "-c", CODE], start_new_session=True)
                time.sleep(600)
            """,
            memory_mib=200,
        )
    text = str(raised.value)
    assert "profile 'tiny' allows 200 MiB" in text
    assert "`memory` of [profiles.tiny]" in text
    assert raised.value.used_mib > 200
    assert "python" in raised.value.largest


def test_usage_counts_the_whole_tree_with_what_has_ended(project):
    seen = []
    result = project.run(
        """
        import subprocess, sys

        CODE = '''
        import time
        until = time.process_time() + 0.4
        x = bytearray(60 * 2**20)
        while time.process_time() < until: pass
        time.sleep(0.8)
        '''.replace("\\n        ", "\\n")

        def job():
            both = [subprocess.Popen([sys.executable, "-c", CODE]) for _ in range(2)]
            return [process.wait() for process in both]
        """,
        on_usage=seen.append,
    )
    assert result.value == [0, 0]
    assert result.usage.cpu_s > 0.8
    assert result.usage.peak_memory_mib > 120
    assert max(usage.processes for usage in seen) >= 4
