"""Caps on the threads of libraries, so that workers times threads stays within the cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final

# Read when a library is loaded; LOKY's bounds what scikit-learn makes of n_jobs=-1.
VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


def threads_per_worker(cores: int, workers: int) -> int:
    """Threads that each of some workers may use: at least one.

    Example:
        >>> threads_per_worker(8, 3)
        2
    """
    return max(1, cores // max(1, workers))


@contextmanager
def thread_caps(threads: int) -> Iterator[None]:
    """Bound the threads of numerical libraries inside the block, then put back what was.

    Variables cap what is loaded later, thread pools that are loaded already are told, and so is
    XGBoost, which asks neither. Worker processes are used again by others: nothing of it stays.

    Args:
        threads: Threads of each library, at least 1.
    """
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
    try:
        with ExitStack() as stack:
            _limit_loaded(stack, threads)
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _limit_loaded(stack: ExitStack, threads: int) -> None:
    controller = _controller(len(sys.modules)) if "numpy" in sys.modules else None
    if controller is not None:
        stack.enter_context(controller.limit(limits=threads))
    if "xgboost" in sys.modules:
        import xgboost

        # Its 0, all cores, can't be set again once it was changed, so their number is.
        before = xgboost.get_config()["nthread"] or len(os.sched_getaffinity(0))
        xgboost.set_config(nthread=threads)
        stack.callback(xgboost.set_config, nthread=before)


@lru_cache(maxsize=1)
def _controller(modules: int) -> Any:  # noqa: ARG001 - another number may mean another library
    """The thread pools that are loaded; looking for them takes milliseconds, for each group."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
