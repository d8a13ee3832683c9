"""Pipelines that need two engines: Spark writes Delta tables, Ray reads a pinned version of them.

Everything here is loaded at first use, so that `import headrace` costs next to nothing and starts
no engine.

Example:
    >>> import headrace
    >>> headrace.TableRef(uri="/lake/flights", version=7, schema_hash="ab").version
    7
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.bridge.read import from_delta, from_spark
    from headrace.bridge.write import to_delta
    from headrace.context import TaskContext, current_context
    from headrace.delta.arrow import read_arrow, write_arrow
    from headrace.delta.spark import read_table, write_table
    from headrace.exceptions import DataError, EngineError, HeadraceError, UserError
    from headrace.orchestration.pipeline import pipeline
    from headrace.orchestration.tasks import python_task, ray_task, spark_task
    from headrace.tables import TableRef
    from headrace.triggers.declare import (
        continuous,
        cron,
        interval,
        on_files,
        on_pipeline,
        on_table,
    )

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "EngineError",
    "HeadraceError",
    "TableRef",
    "TaskContext",
    "UserError",
    "continuous",
    "cron",
    "current_context",
    "from_delta",
    "from_spark",
    "interval",
    "on_files",
    "on_pipeline",
    "on_table",
    "pipeline",
    "python_task",
    "ray_task",
    "read_arrow",
    "read_table",
    "spark_task",
    "to_delta",
    "write_arrow",
    "write_table",
]

_MODULES = {
    "DataError": "exceptions",
    "EngineError": "exceptions",
    "HeadraceError": "exceptions",
    "TableRef": "tables",
    "TaskContext": "context",
    "UserError": "exceptions",
    "continuous": "triggers.declare",
    "cron": "triggers.declare",
    "current_context": "context",
    "from_delta": "bridge.read",
    "from_spark": "bridge.read",
    "interval": "triggers.declare",
    "on_files": "triggers.declare",
    "on_pipeline": "triggers.declare",
    "on_table": "triggers.declare",
    "pipeline": "orchestration.pipeline",
    "python_task": "orchestration.tasks",
    "ray_task": "orchestration.tasks",
    "read_arrow": "delta.arrow",
    "read_table": "delta.spark",
    "spark_task": "orchestration.tasks",
    "to_delta": "bridge.write",
    "write_arrow": "delta.arrow",
    "write_table": "delta.spark",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"headrace.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
