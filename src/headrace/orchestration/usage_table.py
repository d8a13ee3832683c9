"""What attempts used: facts for the ledger, and the table `headrace.usage` in the lake."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from headrace.context import TaskContext, use_context
from headrace.ledger.store import Ledger
from headrace.ledger.usage import UsageRow
from headrace.orchestration.project import Project

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.engines.usage import Usage
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

log = logging.getLogger("headrace.usage")

TABLE: Final = "headrace.usage"
"""Its name in the lake."""

_MOST_BATCHES: Final = 50


def reserved(profile: SparkProfile | RayProfile | PythonProfile) -> dict[str, Any]:
    """What an attempt's profile sets aside for it, and at which price; kept with its usage."""
    return {
        "cores": profile.cores,
        "memory_mib_reserved": profile.memory_mib,
        "price_per_hour": profile.price_per_hour,
    }


def measured(usage: Usage, profile: SparkProfile | RayProfile | PythonProfile) -> dict[str, Any]:
    """All that the ledger keeps of what an attempt used."""
    return {**asdict(usage), **reserved(profile)}


def totals(rows: Iterable[UsageRow]) -> dict[str, float]:
    """What attempts took together; the peak of memory is that of the largest."""
    found = dict.fromkeys(("seconds", "cpu_s", "peak_memory_mib", "read_bytes"), 0.0)
    found |= dict.fromkeys(("written_bytes", "spark_tasks", "ray_tasks", "cost"), 0.0)
    for row in rows:
        found["seconds"] += row.wall_s
        found["peak_memory_mib"] = max(found["peak_memory_mib"], row.peak_memory_mib or 0.0)
        for name in ("cpu_s", "read_bytes", "written_bytes", "spark_tasks", "ray_tasks", "cost"):
            found[name] += getattr(row, name) or 0
    return found


def run_metrics(ledger: Ledger, run_id: str) -> dict[str, float]:
    """A run's totals as MLflow metrics."""
    return {f"headrace.total_{k}": v for k, v in totals(ledger.usage_rows(run_id=run_id)).items()}


def write_usage(project: Project, ledger: Ledger) -> int:
    """Append what the lake's usage table lacks: each attempt once, whatever ends in between.

    Returns:
        How many attempts were written.
    """
    from headrace.delta.arrow_write import write_arrow

    environment = project.environment
    context = TaskContext(
        run_id="usage", task="usage", lake=environment.lake, storage=environment.storage
    )
    count = 0
    for _ in range(_MOST_BATCHES):
        claimed = ledger.claim_usage()
        if claimed is None:
            return count
        batch, rows = claimed
        with use_context(context):
            write_arrow(
                _table(rows), TABLE, mode="append", schema_mode="merge", key=("usage", batch)
            )
        ledger.finish_usage(batch)
        count += len(rows)
    return count


def _table(rows: list[UsageRow]) -> pa.Table:
    import pyarrow as pa

    moment, number, size = pa.timestamp("us", tz="UTC"), pa.float64(), pa.int64()
    kinds = {
        "attempt_id": size,
        "number": size,
        "tags": pa.list_(pa.string()),
        **dict.fromkeys(("started_at", "ended_at"), moment),
        **dict.fromkeys(("wall_s", "cpu_s", "peak_memory_mib", "price_per_hour", "cost"), number),
        **dict.fromkeys(("read_bytes", "written_bytes", "spilled_bytes"), size),
        **dict.fromkeys(("spark_tasks", "ray_tasks", "cores", "memory_mib"), size),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in UsageRow.model_fields])
    plain = [{**row.model_dump(), "tags": list(row.tags)} for row in rows]
    return pa.Table.from_pylist(plain, schema=schema)
