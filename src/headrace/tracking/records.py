"""What is logged about a pipeline run and its tasks, as plain values that survive as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.tables import TableRef

MAX_PARAM_CHARS = 6000
"""MLflow's limit for the value of a parameter (`MLFLOW_TRUNCATE_LONG_VALUES`, 6000 since 2.11)."""

MAX_TAG_CHARS = 8000
"""MLflow's limit for the value of a tag."""


class TableUse(BaseModel):
    """A table version that a task read or wrote."""

    model_config = ConfigDict(frozen=True)

    ref: TableRef
    context: Literal["read", "written"]


class RunLog(BaseModel):
    """Everything that goes to one MLflow run at one moment.

    Attributes:
        mlflow_run_id: The MLflow run it belongs to.
        params: Parameters; long values are cut to MLflow's limit.
        metrics: Finite numbers by name.
        tags: Tags.
        tables: Tables read and written.
        artifacts: Paths of files to upload, by their folder in the run's artifacts.
        status: FINISHED, FAILED or KILLED when the run is over, else None.
        time_ms: When it happened, in milliseconds since 1970 UTC.
    """

    model_config = ConfigDict(extra="forbid")

    mlflow_run_id: str
    params: dict[str, str] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    tags: dict[str, str] = Field(default_factory=dict)
    tables: list[TableUse] = Field(default_factory=list)
    artifacts: list[tuple[str, str]] = Field(default_factory=list)
    status: Literal["FINISHED", "FAILED", "KILLED"] | None = None
    time_ms: int


def flat_params(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as MLflow takes them: one level, strings, within its length limit.

    Args:
        values: JSON values by name; a dictionary inside becomes `outer.inner`.
        prefix: Put before each name.

    Example:
        >>> flat_params({"seed": 7, "model": {"depth": 6}})
        {'seed': '7', 'model.depth': '6'}
    """
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, TableRef):
            flat[prefix + name] = str(value)
        elif isinstance(value, dict) and value:
            flat |= flat_params(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)[:MAX_PARAM_CHARS]
    return flat
