"""The newest registered model on flights that have just arrived, as they come."""

import os
from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, from_delta, ray_task, to_delta
from tasks.delay_registry import MODEL_NAME
from tasks.feature_matrix import FEATURES, TARGET

if TYPE_CHECKING:
    import pandas as pd


@ray_task(profile="train")
def score_arrivals(arrivals: TableRef, *, context: TaskContext) -> TableRef:
    """Predict the delay of the flights that are new since the last run, and append that.

    Args:
        arrivals: The table of `append_flights`.
        context: The task's context.

    Returns:
        The table `arrival_predictions`: key, actual and predicted delay, version of the model.
    """
    new = from_delta(arrivals, changes_since="last")
    scored = new.map_batches(
        _Scorer,
        fn_constructor_args=(os.environ["MLFLOW_TRACKING_URI"],),
        batch_format="pandas",
        concurrency=1,
    )
    ref: TableRef = to_delta(scored, "arrival_predictions", mode="append")
    context.logger.info("arrival_predictions: %s flights by now", f"{ref.row_count:,}")
    return ref


class _Scorer:
    """A worker that has loaded the newest version of the model."""

    def __init__(self, tracking_uri: str) -> None:
        import mlflow

        mlflow.set_tracking_uri(tracking_uri)
        versions = mlflow.MlflowClient().search_model_versions(f"name='{MODEL_NAME}'")
        self.version = max(int(version.version) for version in versions)
        self.model = mlflow.pyfunc.load_model(f"models:/{MODEL_NAME}/{self.version}")

    def __call__(self, batch: "pd.DataFrame") -> "pd.DataFrame":
        predicted = self.model.predict(batch[list(FEATURES)])
        return batch[["flight_id", "flight_date", TARGET]].assign(
            predicted_delay=predicted, model_version=self.version
        )
