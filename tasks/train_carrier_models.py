"""One model of arrival delay for each carrier, registered as one model."""

from typing import TYPE_CHECKING, Any

from headrace import TaskContext, ml, spark_task
from tasks.feature_matrix import NUMBERS, TARGET

if TYPE_CHECKING:
    import pandas as pd

MODEL_NAME = "carrier-delay"


@spark_task(profile="etl")
def train_carrier_models(features: str, *, context: TaskContext) -> dict[str, Any]:
    """Train a model for each carrier whose flights have changed since the last run.

    Carriers differ: how much of a late departure is made up for in the air, for one. A carrier
    with too few flights to learn from is a row in the table `carrier_models`, with its error.

    Args:
        features: The table of `build_features`.
        context: The task's context.

    Returns:
        What `ml.train_per_group` found, as JSON: model, version, `uri`, states of the carriers,
        and `source`, the version that was read.
    """
    advice = ml.advise(features, by="carrier", columns=[*NUMBERS, TARGET])
    context.logger.info("%s", advice)
    context.attach("Advice", markdown=f"```\n{advice}\n```")
    found = ml.train_per_group(
        features,
        by="carrier",
        features=list(NUMBERS),
        target=TARGET,
        filter="split <> 'test'",
        fit=fit_carrier,
        model=MODEL_NAME,
        results="carrier_models",
        on_large="sample",
        only_changed=True,
        backend="spark",
    )
    context.logger.info("%s", found)
    return found.summary()


def fit_carrier(flights: "pd.DataFrame") -> Any:
    """A small model of one carrier's flights; runs on a worker."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    least = 20
    if len(flights) < least:
        raise ValueError(f"{len(flights)} flights are too few to learn from, {least} are needed")
    trees = HistGradientBoostingRegressor(max_iter=60, learning_rate=0.15, random_state=7)
    return trees.fit(flights[list(NUMBERS)], flights[TARGET])
