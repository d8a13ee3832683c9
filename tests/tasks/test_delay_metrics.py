import numpy as np
import pandas as pd  # noqa: TID253
import pytest

from tasks.delay_metrics import error_by, measure_delays


def test_metrics_of_a_known_case():
    metrics = measure_delays(np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.0, 10.0, 20.0, 70.0]))
    assert metrics == {
        "rmse": 20.0,
        "mae": 10.0,
        "r2": pytest.approx(1 - 400 / 125),
        "close": 0.75,
    }


def test_equal_delays_leave_nothing_to_explain():
    assert measure_delays(np.ones(3), np.zeros(3))["r2"] == 0.0


def test_errors_are_grouped():
    frame = pd.DataFrame(
        {"hour": [6, 6, 7], "arr_delay": [0, 10, 5], "model": [1, 7, 5], "mean": [5, 5, 5]}
    )
    assert error_by(frame, "hour").to_dict("index") == {
        6: {"model": 2.0, "mean": 5.0, "flights": 2},
        7: {"model": 0.0, "mean": 0.0, "flights": 1},
    }
