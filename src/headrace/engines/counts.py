"""What an engine counted for a task: tasks that ran, bytes that were spilled to disk."""

from __future__ import annotations

import logging
from typing import Any, Final

_log = logging.getLogger("headrace.engines")

_PATIENCE_MS: Final = 3_000


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
