"""Ray tasks: one on a cluster of its own that is cancelled, others on a shared cluster."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from headrace.engines.shared import open_shared
from headrace.exceptions import TaskCancelledError, TaskImportError
from headrace.profiles.models import RayProfile

pytestmark = pytest.mark.ray

JOB = """
    import json, os, time
    from headrace import ray_task
    from tasks.numbers import double

    @ray_task(profile="train")
    def job(context, wait: bool = False):
        import ray

        @ray.remote
        def work(x):
            print(f"working on {x}")
            return double(x)

        data = ray.data.range(10).map(lambda row: {"id": double(row["id"])})
        told = {
            "doubled": ray.get([work.remote(x) for x in range(3)]),
            "sum": int(data.sum("id")),
            "cpus": ray.cluster_resources()["CPU"],
            "store": ray.cluster_resources()["object_store_memory"],
            "odd": ray.cluster_resources().get("odd", 0),
            "session": ray._private.worker.global_worker.node.get_session_dir_path(),
            "ip": ray.util.get_node_ip_address(),
        }
        time.sleep(1)  # prints of workers come a moment later
        if wait:
            with open("told.part", "w") as handle:
                json.dump(told, handle)
            os.rename("told.part", "told.json")
            time.sleep(600)
        return told
"""


@pytest.fixture
def ray_project(project):
    (project.root / "tasks").mkdir()
    (project.root / "tasks" / "numbers.py").write_text("def double(x): return 2 * x\n")
    return project


def test_a_ray_task_has_its_own_cluster_and_cancel_ends_all_of_it(ray_project):
    project = ray_project
    cancel = threading.Event()
    seen = []

    def press():
        until = time.monotonic() + 300
        while not (project.root / "told.json").exists() and time.monotonic() < until:
            time.sleep(0.1)
        seen.extend(project.processes())
        cancel.set()

    threading.Thread(target=press).start()
    profile = RayProfile(
        name="train", cores=2, memory_mib=2048, object_store_mib=100, resources={"odd": 3.0}
    )
    with pytest.raises(TaskCancelledError):
        project.run(JOB, profile=profile, arguments={"wait": True}, cancel=cancel)
    told = json.loads((project.root / "told.json").read_text())
    assert (told["doubled"], told["sum"]) == ([0, 2, 4], 90)
    assert (told["cpus"], told["odd"], told["ip"]) == (2, 3, "127.0.0.1")
    assert told["store"] == 100 * 2**20
    assert len(seen) > 5
    assert [process for process in seen if process.is_running()] == []
    assert not Path(told["session"]).exists()
    assert any("working on 2" in line for line in project.lines)
    assert {path.name for path in project.root.iterdir()} == {".headrace", "tasks", "told.json"}


def test_tasks_of_a_run_share_a_cluster_that_ends_with_the_run(ray_project):
    project = ray_project
    profile = RayProfile(name="train", cores=2, memory_mib=2048, reuse="run")
    folder = project.root / ".headrace/runs/run1/engine"
    with open_shared(profile, root=project.root, folder=folder) as engine:
        host = project.processes()
        done = project.run(JOB, profile=profile, address=engine.address)
        first = done.value
        # Three of the task's own; Ray Data's of the sum come to it.
        assert done.usage.ray_tasks > 3
        assert (first["doubled"], first["sum"]) == ([0, 2, 4], 90)
        # A second task, whose module no worker can import.
        second = project.run(
            """
            def double(x):
                return 2 * x

            def job():
                import ray
                return ray.get(ray.remote(double).remote(4))
            """,
            file="my-second.py",
            profile=profile,
            address=engine.address,
        )
        assert second.value == 8
        # Of its own job alone, on the cluster that both share.
        assert second.usage.ray_tasks == 1
        assert Path(first["session"]).exists()
        assert engine.usage.memory_mib > 200
    assert [process for process in host if process.is_running()] == []
    assert not Path(first["session"]).exists()


def test_a_file_in_the_root_that_would_hide_a_package_from_workers_is_refused(project):
    (project.root / "yaml.py").touch()
    with pytest.raises(TaskImportError, match=r"yaml\.py hides the installed package"):
        project.run("def job(): ...\n", profile=RayProfile(name="train"))
