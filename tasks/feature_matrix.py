"""The features by name, and how they become the matrix that a model sees.

A registered model carries a copy of this file, so it needs nothing but NumPy and pandas.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

TARGET = "arr_delay"

CATEGORIES = ("carrier", "origin", "dest")

NUMBERS = (
    # the schedule
    "departure_minute",
    "day_of_week",
    "distance_miles",
    "scheduled_minutes",
    "flights_this_hour",
    # the plane and the place
    "plane_seats",
    "plane_age_years",
    "dest_latitude",
    "dest_longitude",
    # the weather an hour before
    "temperature_f",
    "dew_point_f",
    "humidity_pct",
    "wind_direction_deg",
    "wind_speed_mph",
    "wind_gust_mph",
    "precipitation_in",
    "pressure_mb",
    "visibility_miles",
    # the airport in the hours before
    "recent_departures",
    "recent_delay_minutes",
    "overdue_flights",
    "carrier_delay_minutes",
    "carrier_overdue_flights",
)

FEATURES = (*CATEGORIES, *NUMBERS)

Vocabulary = Mapping[str, Sequence[str]]


def build_vocabulary(columns: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """The distinct values of each categorical column, sorted: the place of a value is its code."""
    return {
        name: sorted({str(value) for value in columns[name] if value is not None})
        for name in CATEGORIES
    }


def feature_types() -> list[str]:
    """What each column of the matrix is, in XGBoost's letters: `c` category, `q` quantity."""
    return ["c"] * len(CATEGORIES) + ["q"] * len(NUMBERS)


def encode_features(frame: "pd.DataFrame", vocabulary: Vocabulary) -> "NDArray[np.float32]":
    """Turn feature columns into a matrix, one row per flight, in the order of `FEATURES`.

    A category that the vocabulary doesn't have becomes a missing value, like an empty number.
    """
    matrix = np.empty((len(frame), len(FEATURES)), dtype=np.float32)
    for place, name in enumerate(CATEGORIES):
        codes = {value: float(code) for code, value in enumerate(vocabulary[name])}
        matrix[:, place] = frame[name].map(codes).to_numpy(dtype=np.float32, na_value=np.nan)
    for place, name in enumerate(NUMBERS, start=len(CATEGORIES)):
        matrix[:, place] = frame[name].to_numpy(dtype=np.float32, na_value=np.nan)
    return matrix
