"""The registered model on the test flights, to a table of predictions."""

import os
from typing import TYPE_CHECKING, Any

from headrace import TableRef, TaskContext, from_spark, ray_task, to_delta
from tasks.feature_matrix import CATEGORIES, FEATURES, TARGET

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ["flight_id", "flight_date", "month"]
_BATCH_ROWS = 8_192


@ray_task(profile="train")
def score_flights(features: TableRef, model: dict[str, Any], *, context: TaskContext) -> TableRef:
    """Predict the delay of every test flight and write the table `predictions`.

    Args:
        features: The table of `build_features`.
        model: What `train_delay_model` returned; its `uri` is loaded.
        context: The task's context.

    Returns:
        The table, one row per test flight: its key, carrier, airports, month and hour, the actual
        delay and the predicted one.
    """
    import ray.data

    flights = from_spark(features, columns=[*_KEYS, *FEATURES, TARGET], filter="split = 'test'")
    scored = flights.map_batches(
        _Scorer,
        # From the environment: importing MLflow takes seconds, and only the workers need it.
        fn_constructor_args=(model["uri"], os.environ["MLFLOW_TRACKING_URI"], model["version"]),
        batch_format="pandas",
        batch_size=_BATCH_ROWS,
        # One model per worker; they book half of the cores, the other half reads for them.
        compute=ray.data.ActorPoolStrategy(size=context.workers),
        num_cpus=context.cores / context.workers / 2,
    )
    ref: TableRef = to_delta(scored, "predictions", mode="overwrite")
    context.logger.info("predictions: %s flights", f"{ref.row_count:,}")
    return ref


class _Scorer:
    """A worker that has loaded the model."""

    def __init__(self, uri: str, tracking_uri: str, version: int) -> None:
        import mlflow

        mlflow.set_tracking_uri(tracking_uri)
        self.model = mlflow.pyfunc.load_model(uri)
        self.version = version

    def __call__(self, batch: "pd.DataFrame") -> "pd.DataFrame":
        kept = batch[[*_KEYS, *CATEGORIES, TARGET]]
        return kept.assign(
            hour=(batch["departure_minute"] // 60).astype("int32"),
            predicted_delay=self.model.predict(batch[list(FEATURES)]),
            model_version=self.version,
        )
