"""The newest registered model on flights that have just arrived, as they come."""

import os
from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, from_delta, ray_task, to_delta
from headrace.exceptions import UserError, lines
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

    Raises:
        UserError: No model is registered yet.
    """
    version = _newest_version()
    new = from_delta(arrivals, changes_since="last")
    scored = new.map_batches(
        _Scorer,
        fn_constructor_args=(os.environ["MLFLOW_TRACKING_URI"], version),
        batch_format="pandas",
        concurrency=1,
    )
    ref: TableRef = to_delta(scored, "arrival_predictions", mode="append")
    context.logger.info("arrival_predictions: %s flights by now", f"{ref.row_count:,}")
    return ref


def _newest_version() -> int:
    import mlflow

    found = mlflow.MlflowClient().search_model_versions(f"name='{MODEL_NAME}'")
    if not found:
        raise UserError(
            message=lines(
                f"There is no model {MODEL_NAME!r} to score with.",
                f"Found in the registry: {mlflow.get_registry_uri()} has no version of it.",
                "train one first: headrace run train_delays",
            )
        )
    return max(int(version.version) for version in found)


class _Scorer:
    """A worker that has loaded a version of the model."""

    def __init__(self, tracking_uri: str, version: int) -> None:
        import mlflow

        mlflow.set_tracking_uri(tracking_uri)
        self.version = version
        self.model = mlflow.pyfunc.load_model(f"models:/{MODEL_NAME}/{version}")

    def __call__(self, batch: "pd.DataFrame") -> "pd.DataFrame":
        predicted = self.model.predict(batch[list(FEATURES)])
        return batch[["flight_id", "flight_date", TARGET]].assign(
            predicted_delay=predicted, model_version=self.version
        )
