"""How much memory a worker may use, from the profile and the engine's own words."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.context import current_context
from headrace.ml.engine import active_session, is_connect

_MIB: Final = 2**20
_SIZE: Final = re.compile(r"^(\d+)\s*([bkmgt]?)b?$", re.IGNORECASE)
_UNITS: Final = {"b": 2**-20, "k": 2**-10, "": 1.0, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
# Spark's own rule for what a container has beside the heap.
_LEAST_OVERHEAD_MIB: Final = 384
_OVERHEAD: Final = 0.1
# Python itself with Arrow and pandas, before it has any rows.
_BARE_WORKER_MIB: Final = 100
_LEAST_MIB: Final = 32.0


def profile_memory_mib() -> float:
    """Memory of the task's profile; outside of a task, what this machine has to spare."""
    known = current_context().memory_mib
    if known is not None:
        return float(known)
    import psutil

    return float(psutil.virtual_memory().available / _MIB)


def worker_memory_mib(backend: str, workers: int, *, alone: bool = False) -> float:
    """Memory for the data of one worker, in MiB.

    Args:
        backend: `spark`, `ray` or `local`.
        workers: Workers that run at once.
        alone: Whether the worker has its machine's share to itself.
    """
    if backend == "spark":
        whole, sharing = _spark_memory(active_session(), workers)
    elif backend == "ray":
        whole, sharing = _ray_memory()
    else:
        whole, sharing = profile_memory_mib(), workers
    sharing = 1 if alone else max(1, sharing)
    return max(_LEAST_MIB, whole / sharing - _BARE_WORKER_MIB)


def _spark_memory(spark: Any, workers: int) -> tuple[float, int]:
    """MiB that the Python workers of a machine share, and how many they are."""
    setting = spark.conf.get if is_connect(spark) else spark.sparkContext.getConf().get
    master = str(setting("spark.master", "") or "")
    if master.startswith("local"):
        heap = jvm_mib(setting("spark.driver.memory", None) or "1g")
        return profile_memory_mib() - heap, workers
    cores = int(setting("spark.executor.cores", None) or 1)
    own = setting("spark.executor.pyspark.memory", None)
    if own:
        return jvm_mib(own), cores
    overhead = setting("spark.executor.memoryOverhead", None)
    heap = jvm_mib(setting("spark.executor.memory", None) or "1g")
    return (jvm_mib(overhead) if overhead else max(_LEAST_OVERHEAD_MIB, _OVERHEAD * heap)), cores


def _ray_memory() -> tuple[float, int]:
    """The same of the machine of a Ray cluster that has the least for each CPU."""
    import ray

    found = []
    for node in ray.nodes():
        resources = node["Resources"]
        cpus = int(resources.get("CPU", 0))
        if node["Alive"] and cpus:
            found.append((resources.get("memory", 0) / _MIB, cpus))
    return min(found, key=lambda pair: pair[0] / pair[1], default=(profile_memory_mib(), 1))


def jvm_mib(text: str) -> float:
    """A size as Spark's settings write it, in MiB.

    Example:
        >>> jvm_mib("2g"), jvm_mib("512m")
        (2048.0, 512.0)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        return 0.0
    return float(match[1]) * _UNITS[match[2].lower()]
