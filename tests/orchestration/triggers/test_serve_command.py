"""`headrace serve` as a process, on a real Prefect server: deployments, runs, pauses, news, kill -9."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from prefect.states import Cancelling, Scheduled

from tests.orchestration.triggers.conftest import webhook_receiver
from tests.orchestration.triggers.serving_project import Project, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(900)]


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
