"""What an engine counted for a task: tasks that ran, bytes that were spilled to disk."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from headrace.engines.ray_environment import RAY_REPORT_MS

_log = logging.getLogger("headrace.engines")

_PATIENCE_MS: Final = 3_000
_DRIVER_TASK: Final = 3  # TaskType in Ray's common.proto


def count_spark(session: Any) -> dict[str, int]:
    """Tasks that a classic Spark session ran, and what it spilled; nothing for Spark Connect."""
    context = getattr(session, "_sc", None) or getattr(session, "_jsc", None)
    if context is None or not hasattr(context, "_jsc"):
        return {}
    try:
        return _count(context)
    except Exception as error:  # noqa: BLE001 - figures are not worth a task that has succeeded
        _log.debug("Spark's counts could not be read: %s", error)
        return {}


def _count(context: Any) -> dict[str, int]:
    scala = context._jsc.sc()  # noqa: SLF001
    # Spark tells its listeners in a thread of their own.
    scala.listenerBus().waitUntilEmpty(_PATIENCE_MS)
    store = scala.statusStore()
    executors = store.executorList(False)
    tasks = sum(executors.apply(place).totalTasks() for place in range(executors.size()))
    nothing = context._jvm.java.util.ArrayList()  # noqa: SLF001
    doubles = context._gateway.new_array(context._gateway.jvm.double, 0)  # noqa: SLF001
    stages = store.stageList(nothing, False, False, doubles, nothing)
    spilled = sum(stages.apply(place).diskBytesSpilled() for place in range(stages.size()))
    return {"spark_tasks": int(tasks), "spilled_bytes": int(spilled)}


def count_ray() -> dict[str, int]:
    """Tasks and actor calls of this driver's job; Ray keeps the last 100,000 of a cluster."""
    try:
        return {"ray_tasks": _count_ray()}
    except Exception as error:  # noqa: BLE001 - figures are not worth a task that has succeeded
        _log.debug("Ray's counts could not be read: %s", error)
        return {}


def _count_ray() -> int:
    import ray
    from ray._private.state import state

    time.sleep(RAY_REPORT_MS / 1000 + 0.1)  # what has just ended is told to the cluster by then
    own = ray.get_runtime_context().get_job_id()
    # Ray's public ways (`ray.util.state`) ask the dashboard, which is off.
    events = state._get_all_task_events()  # noqa: SLF001
    found = {
        event.task_id
        for event in events
        if event.job_id.hex() == own and event.task_info.type != _DRIVER_TASK
    }
    return len(found)
