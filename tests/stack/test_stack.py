"""The stack of containers: flows run in it, cancel and repair work across, nothing is open to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.stack.conftest import ROOT, wait_until

pytestmark = pytest.mark.stack


def test_doctor_finds_every_service_its_version_and_its_rights(stack):
    checks = json.loads(stack.headrace("doctor", "--env", "compose", "--json", check=False))
    faults = [check for check in checks if check["state"] == "fault"]
    assert faults == []
    names = {check["name"] for check in checks}
    assert names >= {
        "prefect",
        "mlflow",
        "ledger",
        "lake",
        "lake rights",
        "spark connect",
        "ray job",
    }


def test_a_hand_over_between_clusters_streams_the_logs_of_both(stack):
    out = stack.headrace("run", "flows.stack_flows.hand_over")
    assert "printed by the driver of the Ray task, which sees 2 nodes" in stack.headrace(
        "runs", "logs", "last", "sum_numbers"
    )
    run = stack.run()
    assert run["state"] == "success", out
    uris = json.dumps(run)
    assert f"s3://headrace/{stack.project.name}/numbers" in uris
    assert all(
        value not in uris for name, value in stack.env.items() if "KEY" in name and len(value) > 10
    )
    assert all(
        job["status"] == "SUCCEEDED" for job in stack.jobs() if run["id"] in job["submission_id"]
    )


@pytest.mark.long
def test_the_reference_flow_runs_from_this_machine(stack, flight_csv):
    flow = ["flows.train_delays.train_delays", "--env", "compose"]
    given = ["--param", f"source={flight_csv}", "--param", "rounds=20"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", *flow, *given],
        cwd=ROOT,
        env={**stack.environment(), "HEADRACE_LAKE": "s3://headrace/lake"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.mark.long
def test_the_reference_flow_runs_from_a_deployment(stack):
    """In the stack's worker, with Spark's driver there and its workers on the standalone cluster."""
    code = (
        "from prefect.deployments import run_deployment\n"
        "run = run_deployment('train_delays/headrace', parameters={'rounds': 20}, timeout=1500)\n"
        "print('state:', run.state.type.value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PREFECT_API_URL": stack.env["PREFECT_URL"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=1600,
    )
    assert "state: COMPLETED" in done.stdout, done.stdout + done.stderr[-3000:]


@pytest.mark.long
def test_a_cancel_ends_the_job_on_the_ray_cluster(stack):
    running = stack.start("run", "flows.stack_flows.long_ray")
    try:
        wait_until(lambda: job_states(stack, "wait_for_ever") == ["RUNNING"], "the job runs")
        stack.headrace("cancel", "last")
        wait_until(lambda: job_states(stack, "wait_for_ever") == ["STOPPED"], "the job is stopped")
    finally:
        running.communicate(timeout=120)
    assert stack.run()["state"] == "cancelled"


@pytest.mark.long
def test_a_cancel_ends_the_work_on_the_spark_cluster(stack):
    running = stack.start("run", "flows.stack_flows.long_spark")
    try:
        wait_until(lambda: "waiting for ever" in logs(stack, "spark_for_ever"), "the task runs")
        stack.headrace("cancel", "last")
    finally:
        running.communicate(timeout=120)
    assert stack.run()["state"] == "cancelled"
    # The one worker that the server has is free again.
    stack.headrace("run", "flows.stack_flows.hand_over")


def test_nothing_listens_beyond_this_machine(stack):
    rows = [json.loads(line) for line in stack.compose("ps", "--format", "json").splitlines()]
    published = [port for row in rows for port in row["Publishers"] if port["PublishedPort"]]
    assert published
    assert {port["URL"] for port in published} == {"127.0.0.1"}


def test_other_users_of_this_machine_get_nothing_without_a_token(stack):
    import urllib.error
    import urllib.request

    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(stack.env["RAY_ADDRESS"] + "/api/jobs/", timeout=30)
    assert (ROOT / "infra" / ".env").stat().st_mode & 0o077 == 0


def job_states(stack, task: str) -> list[str]:
    """States of the jobs of the last run's task."""
    jobs = sorted(stack.jobs(), key=lambda job: job["start_time"] or 0)
    return [job["status"] for job in jobs if task in (job["submission_id"] or "")][-1:]


def logs(stack, task: str) -> str:
    return stack.headrace("runs", "logs", "last", task, check=False)
