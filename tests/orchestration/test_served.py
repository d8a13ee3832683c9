"""A pipeline that Prefect serves runs as one that is called: in its own process, deployed by module."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.prefect


@pytest.fixture
def deployment(project, notes):
    from prefect.client.orchestration import get_client

    server = subprocess.Popen(
        [sys.executable, "-c", "import sample_flows; sample_flows.add_up.serve(name='served')"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = time.monotonic() + 240
    with get_client(sync_client=True) as client:
        while True:
            try:
                yield client, client.read_deployment_by_name("add_up/served")
                break
            except LookupError:
                pass
            except Exception as error:
                if type(error).__name__ != "ObjectNotFound":
                    raise
            assert server.poll() is None, server.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.5)
    server.terminate()
    try:
        server.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        server.kill()
        server.communicate()


def test_a_served_pipeline_runs_and_the_ledger_knows(deployment, ledger, ran):
    client, found = deployment
    assert found.entrypoint == "sample_flows.add_up"
    flow_run = client.create_flow_run_from_deployment(found.id, parameters={"count": 6})
    end = time.monotonic() + 240
    while not (state := client.read_flow_run(flow_run.id).state).is_final():
        assert time.monotonic() < end
        time.sleep(1)
    run = ledger.run_of_flow_run(str(flow_run.id))
    assert state.is_completed(), state.message
    assert (run.state, run.parameters["count"]) == ("success", 6)
    assert ran() == ["at_most", "numbers", "total"]
