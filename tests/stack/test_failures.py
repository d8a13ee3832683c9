"""Each service is stopped and started during a run: the run ends well, or is repaired."""

from __future__ import annotations

import json
import time

import pytest

from tests.stack.conftest import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.long]

DOWN_S = 8
# Service, the task that runs then, and words one of which a failed run has to say.
FAILURES = {
    "postgres": ("make_numbers", ("ledger", "postgresql")),
    "ray-worker": ("sum_numbers", ("Ray", "node", "actor", "worker")),
    "s3": ("sum_numbers", ("S3", "store", "connect", "s3://")),
    "prefect": ("make_numbers", ("Prefect",)),
    "mlflow": ("make_numbers", ("MLflow",)),
    "spark-worker": ("make_numbers", ("Spark", "executor")),
    "ray-head": ("sum_numbers", ("Ray",)),
}


@pytest.mark.parametrize("service", list(FAILURES))
def test_a_run_outlives_a_service_that_goes_and_comes_back_or_is_repaired(stack, service):
    task, words = FAILURES[service]
    pauses = ["--param", "rows=41", "--param", "spark_pause_s=5", "--param", "ray_pause_s=5"]
    running = stack.start("run", "flows.stack_flows.hand_over", *pauses)
    try:
        wait_until(lambda: is_running(stack, task), f"{task} runs")
        stack.compose("stop", "--timeout", "3", service)
        time.sleep(DOWN_S)
        stack.compose("start", service)
        out = running.communicate(timeout=600)[0]
    finally:
        running.kill()
    wait_until(lambda: is_healthy(stack, service), f"{service} is back")
    if running.returncode != 0:
        assert any(word.lower() in out.lower() for word in words), out[-5000:]
        wait_until(lambda: "success" in repaired(stack), "the run is repaired", 600)
    run = stack.run()
    assert run["state"] == "success"
    shown = json.loads(stack.headrace("tables", "show", "doubled", "--json"))
    assert shown["rows"] == 41


def is_running(stack, task: str) -> bool:
    shown = stack.headrace("runs", "show", "last", "--json", check=False)
    try:
        attempts = json.loads(shown[: shown.rindex("}") + 1])["attempts"]
    except (ValueError, KeyError):
        return False
    return any(each["task"] == task and each["state"] == "running" for each in attempts)


def repaired(stack) -> str:
    """The last run's state after another repair; a service may still be on its way back."""
    stack.headrace("repair", check=False)
    return stack.run()["state"]


def is_healthy(stack, service: str) -> bool:
    lines = stack.compose("ps", "--format", "json", service).splitlines()
    return any(json.loads(line)["Health"] == "healthy" for line in lines)
