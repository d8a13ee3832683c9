"""DataFrames become Datasets: read from the table's files where that is sure, staged otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.bridge.dataframe import scanned_table, table_of
from headrace.bridge.read import from_spark
from headrace.bridge.staging import remove_staging
from headrace.context import TaskContext, use_context
from headrace.exceptions import ReadRequestError

pytestmark = [pytest.mark.spark, pytest.mark.ray]


@pytest.fixture
def lake(tmp_path):
    context = TaskContext(run_id="run-1", task="hand_over", lake=str(tmp_path / "lake"))
    with use_context(context):
        yield context


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("scan") / "a table")
    frame = spark.range(100).selectExpr("id", "cast(id % 3 as int) p", "concat('s', id) s")
    frame.write.format("delta").partitionBy("p").save(path)
    return path


def staged(lake):
    return list(Path(lake.lake).glob("_headrace/staging/*/*"))


def test_a_plain_scan_is_read_from_its_files(spark, ray_cluster, lake, table):
    frame = spark.read.format("delta").load(table)
    assert scanned_table(frame) is not None
    assert from_spark(frame).count() == 100
    assert from_spark(frame.select("s")).schema().names == ["s"]
    assert not staged(lake)
    assert [str(item.ref) for item in lake.reads] == [f"{table}@v0"]


def test_everything_else_is_staged_once(spark, ray_cluster, lake, table):
    frame = spark.read.format("delta").load(table)
    others = {
        "filter": (frame.where("id > 97"), 2),
        "partition filter": (frame.where("p = 0"), 34),
        "limit": (frame.limit(5), 5),
        "alias": (frame.selectExpr("id as s", "s as id"), 100),
        "join": (frame.join(frame.select("id"), "id"), 100),
        "generated": (spark.range(3), 3),
        "cached": (frame.cache(), 100),
        "odd names": (
            spark.range(1).selectExpr("id as `a b`", "named_struct('x,y', id) as `s;`"),
            1,
        ),
        "empty": (frame.where("id < 0"), 0),
    }
    for number, (name, (other, count)) in enumerate(others.items(), start=1):
        assert scanned_table(other) is None, name
        dataset = from_spark(other)
        assert dataset.count() == count, name
        assert dataset.schema().names == other.columns, name
        assert len(staged(lake)) == number
    frame.unpersist()
    assert remove_staging("another run") == []
    assert remove_staging(older_than=timedelta(hours=1)) == []
    assert remove_staging("run-1") == ["run-1"]
    assert not staged(lake)


def test_an_older_version_is_not_taken_for_the_newest(spark, ray_cluster, lake, tmp_path):
    path = str(tmp_path / "versions")
    spark.range(3).write.format("delta").save(path)
    spark.range(3, 5).write.format("delta").mode("append").save(path)
    old = spark.read.format("delta").option("versionAsOf", 0).load(path)
    assert sorted(row["id"] for row in from_spark(old).take_all()) == [0, 1, 2]


def test_what_spark_cannot_write_is_a_clear_error(spark, lake):
    with pytest.raises(ReadRequestError, match="can't hand the DataFrame over"):
        table_of(spark.range(1).selectExpr("id", "id"))
    with pytest.raises(ReadRequestError, match="got a int"):
        from_spark(5)


def test_a_connect_session_hands_over_the_same_way_and_may_stop_before_the_read(tmp_path):
    script = Path(__file__).with_name("connect_hand_over.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert found, done.stderr[-3000:]
    assert json.loads(found[0].removeprefix("RESULT ")) == {
        "kind": "pyspark.sql.connect.dataframe",
        "is_scan": True,
        "staged": 1,
        "plain": 50,
        "rows": [0, 2, 4, 6, 8],
    }
