"""Exactly one layer distributes: what this process is inside of, and a refusal to nest."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from headrace.exceptions import NestedLayersError

# What headrace itself has put around the user's code in this thread: a trial, a group, a fold.
_own: ContextVar[tuple[str, ...]] = ContextVar("headrace_ml_layers", default=())

_RAY_WORKER: Final = 1


def current_layers() -> tuple[str, ...]:
    """What this code runs inside of that is spread over processes or threads already.

    Returns:
        Any of `spark worker` (a UDF or another function on an executor), `ray worker` (a Ray task
        or actor), `joblib worker` (scikit-learn's `n_jobs`), and what headrace runs there:
        `tuning trial`, `group`, `scoring`. Empty on a driver and in plain Python.
    """
    found = []
    if _in_spark_worker():
        found.append("spark worker")
    if _in_ray_worker():
        found.append("ray worker")
    if _in_joblib_worker():
        found.append("joblib worker")
    return (*found, *_own.get())


@contextmanager
def inside(layer: str) -> Iterator[None]:
    """Mark what the block runs as a part of `layer`."""
    token = _own.set((*_own.get(), layer))
    try:
        yield
    finally:
        _own.reset(token)


def refuse_nested(wanted: str) -> None:
    """Return where `wanted` is the only layer that distributes.

    Args:
        wanted: What is about to start, as a text for the error: `ml.tune on spark`.

    Raises:
        NestedLayersError: This code is a part of another layer already.
    """
    layers = current_layers()
    if layers:
        raise NestedLayersError(wanted=wanted, inside=layers)


def _in_spark_worker() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _in_ray_worker() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized() and ray.get_runtime_context().worker.mode == _RAY_WORKER)


def _in_joblib_worker() -> bool:
    if type(multiprocessing.current_process()).__name__ == "LokyProcess":
        return True
    if "joblib" not in sys.modules:
        return False
    from joblib.parallel import get_active_backend

    return bool(get_active_backend()[0].nesting_level)
