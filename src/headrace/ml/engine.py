"""Which engine a part of `headrace.ml` runs on: the task's, or what the user names."""

from __future__ import annotations

import sys
from typing import Any

from headrace.context import current_context
from headrace.exceptions import MlRequestError


def active_session() -> Any:
    """The Spark session of this process, or None."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def has_ray() -> bool:
    """Whether this process is connected to a Ray cluster."""
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect, which has no JVM and no RDD."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def choose_backend(given: str | None, known: tuple[str, ...], *, what: str) -> str:
    """The backend that a user names, or that of the task that this is.

    Raises:
        MlRequestError: There is no such backend, or its engine has not been started here.
    """
    ready = {
        "local": True,
        "spark": active_session() is not None,
        "ray": has_ray(),
    }
    if given is None:
        both = [name for name in ("spark", "ray") if ready[name] and name in known]
        if len(both) > 1:
            raise MlRequestError(
                problem=f"{what} finds Spark and Ray in this process.",
                found=f"backend is one of {', '.join(known)}.",
                fix='backend="spark"',
            )
        if both or "local" in known:
            return both[0] if both else "local"
        raise MlRequestError(
            problem=f"{what} finds no engine in this process.",
            found=f"It runs on {' or '.join(known)}.",
            fix="call it in a @spark_task or a @ray_task",
        )
    if given not in known:
        raise MlRequestError(
            problem=f"{what} has no backend {given!r}.",
            found=f"Known: {', '.join(known)}.",
            fix=f'backend="{known[0]}"',
        )
    if not ready[given]:
        raise MlRequestError(
            problem=f'{what} on backend="{given}" needs {given.title()} in this process.',
            found=f"No {'session' if given == 'spark' else 'cluster'} is connected here.",
            fix=f"call it in a @{given}_task",
        )
    return given


def slots_of(backend: str) -> int:
    """How many workers of one core can run at once."""
    if backend == "spark" and not is_connect(active_session()):
        return int(active_session().sparkContext.defaultParallelism)
    if backend == "ray":
        import ray

        return int(ray.cluster_resources().get("CPU", 1))
    return max(1, current_context().cores)


def barrier_slots(spark: Any) -> int:
    """How many tasks of a classic session run at once: what a barrier stage may ask for."""
    context = spark.sparkContext
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark itself has no name for it
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))
