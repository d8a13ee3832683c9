from __future__ import annotations

import pytest
from deltalake import DeltaTable


def test_delta_table_writes_rows_and_tells_the_path(delta_table):
    uri = delta_table([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], name="people")
    assert delta_table([{"id": 3, "name": "c"}], name="people", mode="append") == uri
    assert DeltaTable(uri).version() == 1
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 3


@pytest.mark.spark
def test_the_session_of_tests_reads_and_writes_delta(spark, delta_table, tmp_path):
    frame = spark.read.format("delta").load(delta_table([{"id": 1}, {"id": 2}]))
    frame.write.format("delta").save(str(tmp_path / "copy"))
    assert DeltaTable(str(tmp_path / "copy")).to_pyarrow_table().num_rows == 2


@pytest.mark.ray
def test_the_cluster_of_tests_runs_tasks(ray_cluster):
    import ray

    assert ray.get(ray.remote(lambda: 1 + 1).remote()) == 2
    assert ray_cluster["address"].startswith("127.0.0.1:")
