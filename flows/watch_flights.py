"""Watch a folder for new flights: append them, score them, measure how far they have drifted."""

from typing import Any

from headrace import on_files, pipeline
from tasks.append_flights import append_flights
from tasks.measure_drift import measure_drift
from tasks.score_arrivals import score_arrivals


@pipeline(
    name="watch_flights",
    triggers=[
        on_files(
            "incoming/flights/*.csv",
            quiet_s=10,
            name="new-flights",
            parameters={"files": "{{ trigger.files }}"},
        )
    ],
    long_after_s=1800,
)
def watch_flights(files: list[str]) -> dict[str, Any]:
    """Handle flights that came as files; `headrace serve` runs it for each set of new ones.

    `train_delays` has run before: its tables of weather, planes and airports and its model are
    used.

    Args:
        files: CSV files with the columns of `flights.csv`.

    Returns:
        What `measure_drift` found.
    """
    arrivals = append_flights(files)
    predictions = score_arrivals(arrivals)
    drift: dict[str, Any] = measure_drift(arrivals, predictions)
    return drift
