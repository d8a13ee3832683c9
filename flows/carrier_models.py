"""A model of delays for each carrier: trained in Spark, scored in Ray."""

from typing import Any

from headrace import pipeline
from tasks.score_carriers import score_carriers
from tasks.train_carrier_models import train_carrier_models


@pipeline(name="carrier_models")
def carrier_models(features: str = "features") -> dict[str, Any]:
    """Train a model for each carrier whose flights have changed, and score the test flights.

    `train_delays` has run before: its table of features is used.

    Args:
        features: Name or path of the table of features.

    Returns:
        The registered model, how many carriers were trained or kept, and the predictions.
    """
    models = train_carrier_models(features)
    predictions = score_carriers(models)
    return {"model": models["uri"], "states": models["states"], "predictions": predictions}


if __name__ == "__main__":
    carrier_models()
