"""What MLflow gets to know about a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace.tracking.records import RunLog, TableUse
from headrace.tracking.tracker import now_ms

if TYPE_CHECKING:
    from headrace.engines.spec import AttemptResult
    from headrace.ledger.records import AttemptRecord
    from headrace.orchestration.session import RunSession
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

LOG_LIMIT_BYTES = 5 * 2**20
"""A longer log stays in its file and is not copied to MLflow."""


def start_task_run(
    session: RunSession,
    record: AttemptRecord,
    profile: SparkProfile | RayProfile | PythonProfile,
) -> str | None:
    """Start the nested MLflow run of an attempt; None when MLflow does not take it."""
    return session.tracker.start_run(
        session.experiment,
        record.name if record.number == 1 else f"{record.name} (attempt {record.number})",
        parent=session.mlflow_run_id,
        tags={
            "headrace.run_id": session.run.id,
            "headrace.task": record.task,
            "headrace.key": record.key,
            "headrace.attempt": str(record.number),
            "headrace.profile": profile.name,
            "headrace.engine": profile.engine,
            "prefect.task_run_id": record.prefect_task_run_id or "",
            **{f"label.{name}": value for name, value in profile.labels.items()},
        },
        params={
            "profile": profile.name,
            "engine": profile.engine,
            "cores": str(profile.cores),
            "workers": str(profile.workers),
            "memory_mib": str(profile.memory_mib),
        },
    )


def finish_task_run(
    session: RunSession,
    mlflow_run_id: str | None,
    profile: SparkProfile | RayProfile | PythonProfile,
    result: AttemptResult | None,
    log_path: Path,
    *,
    error: BaseException | None = None,
) -> None:
    """Log what an attempt used, read and wrote, and end its MLflow run."""
    if mlflow_run_id is None:
        return
    usage = result.usage if result else None
    metrics = {}
    if usage is not None:
        metrics = {
            "headrace.seconds": usage.wall_s,
            "headrace.cpu_s": usage.cpu_s,
            "headrace.peak_memory_mib": usage.peak_memory_mib,
        }
        for name in ("read_bytes", "written_bytes", "spilled_bytes", "spark_tasks", "ray_tasks"):
            value = getattr(usage, name)
            if value is not None:
                metrics[f"headrace.{name}"] = float(value)
        if profile.price_per_hour:
            metrics["headrace.cost"] = usage.wall_s / 3600 * profile.price_per_hour
    status: Literal["FINISHED", "FAILED"] = "FINISHED" if error is None else "FAILED"
    session.tracker.send(
        RunLog(
            mlflow_run_id=mlflow_run_id,
            metrics=metrics,
            tags={"headrace.error": str(error)[:2000]} if error else {},
            tables=_tables(result),
            artifacts=_files(result, log_path),
            status=status,
            time_ms=now_ms(),
        )
    )


def _tables(result: AttemptResult | None) -> list[TableUse]:
    if result is None:
        return []
    reads = [TableUse(ref=read.ref, context="read") for read in result.reads]
    return reads + [TableUse(ref=write.ref, context="written") for write in result.writes]


def _files(result: AttemptResult | None, log_path: Path) -> list[tuple[str, str]]:
    files = [(a.path, "attachments") for a in result.attachments if a.path] if result else []
    if log_path.exists() and 0 < log_path.stat().st_size <= LOG_LIMIT_BYTES:
        files.append((str(log_path), "log"))
    return files
