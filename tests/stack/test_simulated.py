"""The reference flow on clusters that are played by processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.stack.conftest import ROOT

NODES = 6


@pytest.fixture
def many_nodes():
    """A Ray cluster of small nodes, each with processes and an object store of its own."""
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "num_cpus": 0})
    try:
        for _ in range(NODES):
            cluster.add_node(**small)
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.mark.stack
@pytest.mark.long
def test_the_reference_flow_runs_on_many_small_nodes_and_spark_workers(
    many_nodes, flight_csv, tmp_path
):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE")}
    clusters = {
        "HEADRACE_RAY_ADDRESS": many_nodes,
        "HEADRACE_SPARK_ADDRESS": "local-cluster[2,1,1024]",
    }
    given = ["--param", f"source={flight_csv}", "--param", "rounds=20"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", "flows.train_delays.train_delays", *given],
        cwd=ROOT,
        env={**kept, **clusters, "HEADRACE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
