from __future__ import annotations

import json

import pytest

from headrace.context import TaskContext, use_context
from headrace.delta.arrow import read_arrow
from tasks.score_carriers import score_carriers
from tasks.train_carrier_models import train_carrier_models

pytestmark = [pytest.mark.spark, pytest.mark.ray]


def test_each_carrier_is_trained_in_spark_and_predicted_in_ray_by_its_own_model(
    spark, ray_cluster, features, tracking, task_context
):
    options = {"run_id": "carriers", "lake": task_context.lake, "cores": 2, "memory_mib": 2048}
    with use_context(TaskContext(**options, task="train_carrier_models")) as context:
        models = train_carrier_models(features.uri, context=context)
    assert json.loads(json.dumps(models)) == models
    assert models["states"]["trained"] == 2
    with use_context(TaskContext(**options, task="score_carriers")) as context:
        predictions = score_carriers(models, context=context)
    rows = read_arrow(predictions).to_pandas()
    assert set(rows["carrier"]) == {"DL", "MQ"}
    assert rows["predicted_delay"].notna().all()
    wanted = read_arrow(features, columns=["flight_id"], filter="split = 'test'").num_rows
    assert len(rows) == wanted > 0
