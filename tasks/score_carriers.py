"""Each carrier's own model on its test flights."""

from typing import Any

from headrace import TableRef, TaskContext, ml, ray_task
from tasks.feature_matrix import TARGET


@ray_task(profile="train")
def score_carriers(models: dict[str, Any], *, context: TaskContext) -> TableRef:
    """Predict the delay of every test flight with its carrier's model.

    Args:
        models: What `train_carrier_models` returned.
        context: The task's context.

    Returns:
        The table `carrier_predictions`: the flight's key, carrier, delay and predicted delay.
        Flights of carriers without a model are in `carrier_predictions_bad`, with the reason.
    """
    found = ml.score(
        TableRef(**models["source"]),
        models["uri"],
        to="carrier_predictions",
        key="flight_id",
        keep=["flight_date", "carrier", TARGET],
        prediction="predicted_delay",
        filter="split = 'test'",
        backend="ray",
    )
    context.logger.info("%s", found)
    return found.table
