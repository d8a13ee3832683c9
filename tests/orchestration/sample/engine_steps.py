"""Tasks that keep Spark and Ray busy until they are ended."""

import os
import subprocess
import sys
import time
from pathlib import Path

from headrace import ray_task, spark_task

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def note(pid: int, kind: str) -> None:
    with Path(os.environ["SAMPLE_NOTES"] + f".{kind}").open("a") as file:
        file.write(f"{pid}\n")


def start_deaf() -> None:
    """A process in a session of its own that ignores TERM."""
    note(subprocess.Popen([sys.executable, "-c", DEAF], start_new_session=True).pid, "deaf")


def sleep_in_a_worker(batches):
    note(os.getpid(), "worker")
    time.sleep(600)
    yield from batches


@spark_task(profile="shared-etl")
def busy_spark(spark) -> int:
    start_deaf()
    return spark.range(4).mapInArrow(sleep_in_a_worker, "id long").count()


@ray_task(profile="shared-train")
def busy_ray() -> list:
    import ray

    start_deaf()
    return ray.get(ray.remote(sleep_in_ray).remote())


def sleep_in_ray():
    note(os.getpid(), "worker")
    time.sleep(600)
