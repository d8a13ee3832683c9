import pytest

from headrace import read_arrow
from tasks.feature_matrix import FEATURES

pytestmark = [pytest.mark.spark, pytest.mark.ray]


def test_predictions_equal_those_of_the_model_here(demo):
    import mlflow

    test = read_arrow(demo.features, filter="split = 'test'").to_pandas()
    expected = mlflow.pyfunc.load_model(demo.model["uri"]).predict(test[list(FEATURES)])
    rows = read_arrow(demo.predictions).to_pylist()
    found = {row["flight_id"]: row["predicted_delay"] for row in rows}
    assert found == pytest.approx(dict(zip(test["flight_id"], expected, strict=True)), abs=1e-4)


def test_predictions_keep_the_key_the_truth_and_the_model(demo):
    features = read_arrow(demo.features, filter="split = 'test'").to_pylist()
    truth = {row["flight_id"]: row for row in features}
    for row in read_arrow(demo.predictions).to_pylist():
        flight = truth[row["flight_id"]]
        assert row["arr_delay"] == flight["arr_delay"]
        assert row["hour"] == flight["departure_minute"] // 60
        assert row["model_version"] == demo.model["version"]
