"""A training of trees in MLflow: its parameters, and the scores of each round."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.context import current_context
from headrace.tracking.tracker import first_line, now_ms

if TYPE_CHECKING:
    from headrace.ml.boosted import BoostedModel

log = logging.getLogger("headrace.ml")

_METRICS_PER_CALL = 1_000


def log_training(
    model: BoostedModel, params: Mapping[str, Any], *, track: bool | None
) -> BoostedModel:
    """Log to the task's run, or to the active one, or to a new one.

    MLflow that does not answer costs a warning, and never the model.

    Args:
        model: What was trained.
        params: The library's parameters, as the user gave them.
        track: Whether to; None for where the task is tracked.

    Returns:
        The model, with the run's id.
    """
    context = current_context()
    if not (context.mlflow_run_id is not None if track is None else track):
        return model
    try:
        return replace(model, mlflow_run_id=_log(model, params, context.mlflow_run_id))
    except Exception as error:  # noqa: BLE001 - the model is worth more than its log
        log.warning("MLflow did not take the training: %s", first_line(error))
        return model


def _log(model: BoostedModel, params: Mapping[str, Any], run_id: str | None) -> str:
    import mlflow
    from mlflow.entities import Metric, Param

    client, is_new = mlflow.MlflowClient(), False
    if run_id is None:
        active = mlflow.active_run()
        is_new = active is None
        run_id = (active or mlflow.start_run(run_name=f"train_{model.kind}")).info.run_id
    now = now_ms()
    metrics = [
        Metric(f"{data}_{metric}", value, now, step)
        for data, scores in model.history.items()
        for metric, values in scores.items()
        for step, value in enumerate(values, start=1)
    ]
    metrics.append(Metric("best_round", model.best_round, now, 0))
    names = [Param(f"{model.kind}.{name}", str(value)) for name, value in params.items()]
    client.log_batch(run_id, params=names)
    for start in range(0, len(metrics), _METRICS_PER_CALL):
        client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_CALL])
    if is_new:
        mlflow.end_run()
    return str(run_id)
