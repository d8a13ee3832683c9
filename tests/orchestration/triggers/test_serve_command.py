"""`headrace serve` as a process, on a real Prefect server: deployments, runs, pauses, news, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from prefect.states import Cancelling, Scheduled

from headrace.ledger.store import open_ledger
from tests.orchestration.triggers.conftest import webhook_receiver

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]

FLOWS = """
import time

from headrace import cron, interval, on_files, on_pipeline, pipeline, python_task


@python_task(key="item")
def handle(item: str) -> str:
    print("handling", item)
    if "bad" in item:
        raise ValueError(f"{item} can't be read")
    if "slow" in item:
        time.sleep(900)
    return item


@pipeline(
    triggers=[
        on_files("in/*.csv", settle_s=0, name="files", parameters={"files": "{{ trigger.files }}"}),
        cron("0 6 * * *", tz="Europe/Paris", name="morning"),
    ],
    notify=["webhook/ours"],
)
def arrive(files: list[str] = []) -> list[str]:
    return [handle(file) for file in files]


@pipeline(triggers=[on_pipeline("arrive", parameters={"run_id": "{{ trigger.run_id }}"})])
def follow(run_id: str) -> str:
    return handle(run_id)
"""
PROFILE = '[profiles.small]\nengine = "python"\nmemory = "512MiB"\nprice_per_hour = 3600\n'


def wait_for(look, seconds=400):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.5)
    return found


class Project:
    def __init__(self, root):
        self.root, self.process = root, None
        (root / "flows").mkdir(parents=True)
        (root / "in").mkdir()
        (root / "infra" / "profiles").mkdir(parents=True)
        (root / "flows" / "arriving.py").write_text(FLOWS)
        (root / "infra" / "profiles" / "local.toml").write_text(PROFILE)
        self.ledger = open_ledger(f"sqlite:///{root}/.headrace/ledger.db")

    def headrace(self, *arguments):
        command = [sys.executable, "-m", "headrace", *arguments]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def serve(self):
        path = self.root / "serve.log"
        before = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "headrace", "serve"],
                cwd=self.root,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: b"Serving" in path.read_bytes()[before:])

    def runs(self, pipeline, count, state="success"):
        """Wait until a pipeline has so many runs and the newest is in a state."""

        def look():
            found = self.ledger.list_runs(pipeline=pipeline)
            over = len(found) == count and found[0].state not in ("queued", "running")
            assert not over or found[0].state == state, found[0]
            return found if over else None

        return wait_for(look)


@pytest.fixture(scope="module")
def received():
    with webhook_receiver() as found:
        yield found


@pytest.fixture(scope="module")
def project(tmp_path_factory, prefect_url, received):
    from prefect.blocks.webhook import Webhook

    Webhook(url=received[1]).save("ours", overwrite=True)
    made = Project(tmp_path_factory.mktemp("served") / "Mühle am Bach")
    environment = {
        name: os.environ.pop(name, None) for name in ("HEADRACE_PROJECT", "HEADRACE_STATE")
    }
    made.serve()
    yield made
    made.process.send_signal(signal.SIGTERM)
    assert made.process.wait(timeout=60) == 0
    made.ledger.close()
    os.environ.update({name: value for name, value in environment.items() if value is not None})


@pytest.fixture
def client(prefect_url):
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as made:
        yield made


def deployment(client, name):
    from prefect.exceptions import ObjectNotFound

    def look():
        try:
            return client.read_deployment_by_name(f"{name}/headrace")
        except ObjectNotFound:
            return None

    return wait_for(look)


def test_a_file_starts_a_run_that_prefect_shows_and_another_pipeline_follows(project, client):
    found = deployment(client, "arrive")
    assert found.entrypoint == "flows.arriving.arrive"
    assert [(s.slug, s.schedule.timezone) for s in found.schedules] == [("morning", "Europe/Paris")]
    (project.root / "in" / "a.csv").write_text("1")
    [run] = project.runs("arrive", 1)
    assert run.parameters["files"] == [str(project.root / "in" / "a.csv")]
    flow_run = client.read_flow_run(run.prefect_flow_run_id)
    assert flow_run.deployment_id == found.id
    wait_for(lambda: client.read_flow_run(flow_run.id).state.type == "COMPLETED")
    [after] = project.runs("follow", 1)
    assert after.parameters == {"run_id": run.id}
    shown = json.loads(project.headrace("triggers", "show", "arrive", "--json"))
    assert shown["firings"][0]["run_id"] == run.id
    usage = json.loads(project.headrace("usage", "--json", "--by", "task"))
    assert {row["task"] for row in usage} == {"arrive.handle", "follow.handle"}
    assert all(row["cost"] > 0 and row["read_bytes"] > 0 for row in usage)


def test_a_failure_and_the_recovery_from_it_are_told_once_with_all_that_is_needed(
    project, received
):
    told, _ = received
    (project.root / "in" / "bad.csv").write_text("1")
    failed = project.runs("arrive", 2, "failed")[0]
    wait_for(lambda: len(told) == 1)
    text = told[0]["text"]
    assert f"headrace repair {failed.id}" in text
    assert "ValueError" in text
    assert "bad.csv can't be read" in text
    assert "handling" in text  # the end of the log
    flow = project.root / "flows" / "arriving.py"
    flow.write_text(flow.read_text().replace('if "bad" in item', 'if "worse" in item'))
    project.headrace("repair", failed.id)
    wait_for(lambda: len(told) == 2)
    assert "has recovered" in told[1]["subject"]
    time.sleep(6)  # a second look of the sender
    assert len(told) == 2


def test_a_pause_on_prefects_page_holds_and_a_run_from_the_page_is_in_the_ledger(project, client):
    found = deployment(client, "arrive")
    [schedule] = found.schedules
    client.update_deployment_schedule(found.id, schedule.id, active=False)
    wait_for(lambda: project.ledger.find_trigger("arrive", "morning").paused_in_prefect)
    project.headrace("triggers", "resume", "arrive", "morning")
    wait_for(lambda: not project.ledger.find_trigger("arrive", "morning").paused_in_prefect)
    assert client.read_deployment(found.id).schedules[0].active
    flow_run = client.create_flow_run_from_deployment(found.id, parameters={"files": ["by hand"]})
    run = project.runs("arrive", 3)[0]
    assert run.parameters["files"] == ["by hand"]
    assert run.prefect_flow_run_id == str(flow_run.id)


def test_kill_9_and_a_restart_lose_nothing_and_double_nothing(project, client):
    project.process.kill()
    project.process.wait()
    (project.root / "in" / "c.csv").write_text("1")
    project.serve()
    run = project.runs("arrive", 4)[0]
    assert run.parameters["files"] == [str(project.root / "in" / "c.csv")]
    project.process.kill()
    project.process.wait()
    project.serve()
    time.sleep(8)
    assert len(project.ledger.list_runs(pipeline="arrive")) == 4
    # Prefect's coming runs are still those of one schedule.
    assert len(deployment(client, "arrive").schedules) == 1


def test_a_person_pauses_and_fires_from_the_command_line(project):
    project.headrace("triggers", "pause", "arrive", "files")
    (project.root / "in" / "d.csv").write_text("1")
    listed = json.loads(project.headrace("triggers", "list", "--json"))
    [state] = [row["state"] for row in listed if row["trigger"] == "files"]
    assert state.startswith("paused by ")
    fire = ["triggers", "fire", "arrive", "files"]
    wanted = {"files": [str(project.root / "in" / "d.csv")]}
    assert json.loads(project.headrace(*fire, "--dry-run"))["parameters"] == wanted
    assert len(project.ledger.list_runs(pipeline="arrive")) == 4
    made = json.loads(project.headrace(*fire, "--json"))
    run = project.runs("arrive", 5)[0]
    assert (run.id, run.parameters) == (made["run"], wanted)
    project.headrace("triggers", "resume", "arrive", "files")
    (project.root / "in" / "e.csv").write_text("1")
    assert project.runs("arrive", 6)[0].parameters == {"files": [str(project.root / "in/e.csv")]}


def test_cancel_and_retry_on_prefects_page_reach_the_run(project, client):
    (project.root / "in" / "slow.csv").write_text("1")
    wait_for(lambda: project.ledger.list_runs(pipeline="arrive")[0].state == "running")
    run = project.ledger.list_runs(pipeline="arrive")[0]
    wait_for(
        lambda: any(a.state == "running" for a in project.ledger.latest_attempts(run.id).values())
    )
    flow_run_id = project.ledger.get_run(run.id).prefect_flow_run_id
    client.set_flow_run_state(flow_run_id, Cancelling(), force=True)
    assert project.runs("arrive", 7, "cancelled")[0].id == run.id
    wait_for(lambda: client.read_flow_run(flow_run_id).state.type == "CANCELLED")

    flow = project.root / "flows" / "arriving.py"
    flow.write_text(flow.read_text().replace('if "slow" in item', 'if "slowest" in item'))
    pressed = Scheduled(name="AwaitingRetry", message="Retry from the UI")
    client.set_flow_run_state(flow_run_id, pressed, force=True)
    wait_for(lambda: project.ledger.get_run(run.id).state == "success")
    assert project.ledger.current_repair(run.id).seq == 1
    wait_for(lambda: client.read_flow_run(flow_run_id).state.type == "COMPLETED")
