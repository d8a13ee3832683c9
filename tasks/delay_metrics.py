"""How good a prediction of delays is."""

from typing import TYPE_CHECKING

import numpy as np

from tasks.feature_matrix import TARGET

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

CLOSE_MINUTES = 15


def measure_delays(actual: "ArrayLike", predicted: "ArrayLike") -> dict[str, float]:
    """Compare predicted with actual delays, both in minutes.

    Returns:
        `rmse` and `mae` in minutes, `r2` (share of the variance explained; 0 when the actual delays
        don't vary), and `close`: the share of flights predicted within 15 minutes.
    """
    truth = np.asarray(actual, dtype=np.float64)
    error = np.asarray(predicted, dtype=np.float64) - truth
    variance = float(np.var(truth))
    squared = float(np.mean(error**2))
    return {
        "rmse": squared**0.5,
        "mae": float(np.mean(np.abs(error))),
        "r2": 1 - squared / variance if variance else 0.0,
        "close": float(np.mean(np.abs(error) <= CLOSE_MINUTES)),
    }


def error_by(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """The mean absolute error of the model and of the mean, in each group of flights.

    Args:
        frame: Columns `arr_delay`, `model` and `mean`, in minutes, and the one to group by.
        column: The column to group by.

    Returns:
        Columns `flights`, `model` and `mean`, one row per group in the order of the groups.
    """
    errors = frame[["model", "mean"]].sub(frame[TARGET], axis=0).abs()
    groups = errors.groupby(frame[column], observed=True)
    return groups.mean().assign(flights=groups.size())
