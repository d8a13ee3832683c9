"""Places where workers of a tuning job run: local processes, Spark tasks, Ray tasks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, Literal, Protocol

from headrace.ml.hosts import LOOPBACK, ray_host, spark_host
from headrace.ml.spark_job import SparkJob
from headrace.ml.trial_worker import work
from headrace.ml.wire import Address

Backend = Literal["local", "spark", "ray"]


class Slots(Protocol):
    """Starts and ends the workers of one job; each has a number from 0.

    Attributes:
        host: Address of the driver that the workers reach.
        sends_data: Whether the engine brings the data, and not the line.
    """

    host: str
    sends_data: bool

    def start(self, slot: int, address: Address) -> None:
        """Start the worker of a slot, or another one after it was lost."""

    def end(self, slot: int) -> None:
        """End a slot's worker now, whatever it does."""

    def problem(self, slot: int) -> str | None:
        """Why the slot has no worker any more, in the engine's words; None while it has one."""

    def close(self) -> None:
        """End all workers."""


class LocalSlots:
    """Processes of this machine, each with a Python of its own."""

    host = LOOPBACK
    sends_data = False

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, slot: int, address: Address) -> None:
        """Start a process; where it connects to goes through its stdin, where nobody sees it."""
        paths = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.ml.trial_worker"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        told = {"host": address.host, "port": address.port, "key": address.key.hex(), "slot": slot}
        assert process.stdin is not None  # noqa: S101 - it was asked for
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
        self._processes[slot] = process

    def end(self, slot: int) -> None:
        """Kill the process."""
        process = self._processes.pop(slot, None)
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()

    def problem(self, slot: int) -> str | None:
        """Its exit code, once it has one."""
        process = self._processes.get(slot)
        code = process.poll() if process is not None else None
        if code is None:
            return None
        return f"its process ended by signal {-code}" if code < 0 else f"its process ended: {code}"

    def close(self) -> None:
        """Kill all."""
        for slot in list(self._processes):
            self.end(slot)


class SparkSlots:
    """Spark tasks: one job per worker, so that a lost one takes no other with it.

    Args:
        spark: A session, classic or Connect.
        data: What to broadcast, or None.
    """

    sends_data = True

    def __init__(self, spark: Any, data: Any) -> None:
        self._spark = spark
        self.host = spark_host(spark)
        self._jobs: dict[int, SparkJob] = {}
        self._broadcast = None
        if data is not None:
            self._broadcast = spark.sparkContext.broadcast(data)

    def start(self, slot: int, address: Address) -> None:
        """Run a job of one task in a thread."""
        work = _spark_work(address, slot, self._broadcast)

        def run() -> None:
            self._spark.range(0, 1, 1, 1).mapInPandas(work, "trials long").collect()

        job = SparkJob(self._spark, f"headrace-tune-{slot}", run)
        self._jobs[slot] = job
        job.start()

    def end(self, slot: int) -> None:
        """Cancel the job; Spark ends its Python worker."""
        job = self._jobs.pop(slot, None)
        if job is not None:
            job.cancel(timeout_s=30)

    def problem(self, slot: int) -> str | None:
        """What Spark says about the job, once it has ended."""
        job = self._jobs.get(slot)
        if job is None or job.alive():
            return None
        error = job.problem()
        return "its Spark task ended" if error is None else _spark_reason(error)

    def close(self) -> None:
        """Cancel all jobs, and give the data back."""
        for slot in list(self._jobs):
            self.end(slot)
        if self._broadcast is not None:
            with contextlib.suppress(Exception):
                self._broadcast.destroy()


def _spark_work(address: Address, slot: int, broadcast: Any) -> Any:
    """What the Spark task runs; a closure, as Spark wants it."""

    def run(batches: Any) -> Any:
        import pandas as pd

        for _ in batches:
            pass
        load = None if broadcast is None else lambda: broadcast.value
        yield pd.DataFrame({"trials": [work(address, slot, load)]})

    return run


def _spark_reason(error: BaseException) -> str:
    text = str(error).strip()
    if "Python worker exited unexpectedly" in text or "crashed" in text:
        return "its Python worker crashed or was killed"
    return text.partition("\n")[0][:300] or type(error).__name__


class RaySlots:
    """Ray tasks of one CPU each.

    Args:
        data: What to put into the object store, or None.
        cpus: CPUs that a worker books.
    """

    sends_data = True

    def __init__(self, data: Any, cpus: float) -> None:
        import ray

        self.host = ray_host()
        self._cpus = cpus
        self._data = None if data is None else ray.put(data)
        self._tasks: dict[int, Any] = {}

    def start(self, slot: int, address: Address) -> None:
        """Start a task that Ray doesn't retry: the driver decides on that."""
        import ray

        task = ray.remote(num_cpus=self._cpus, max_retries=0)(_ray_work)
        # In a list the reference arrives as one, and a task without data needs none.
        refs = [] if self._data is None else [self._data]
        self._tasks[slot] = task.remote(address, slot, refs)

    def end(self, slot: int) -> None:
        """Kill the worker process."""
        import ray

        task = self._tasks.pop(slot, None)
        if task is not None:
            ray.cancel(task, force=True)
            ray.wait([task], timeout=30)

    def problem(self, slot: int) -> str | None:
        """What Ray says about the task, once it has ended."""
        import ray

        task = self._tasks.get(slot)
        if task is None or not ray.wait([task], timeout=0)[0]:
            return None
        try:
            ray.get(task)
        except Exception as error:  # noqa: BLE001 - read by the driver
            kind = type(error).__name__
            return "its Ray worker crashed or was killed" if kind == "WorkerCrashedError" else kind
        return "its Ray task ended"

    def close(self) -> None:
        """End all tasks."""
        for slot in list(self._tasks):
            self.end(slot)


def _ray_work(address: Address, slot: int, refs: list[Any]) -> int:
    import ray

    return work(address, slot, (lambda: ray.get(refs[0])) if refs else None)
