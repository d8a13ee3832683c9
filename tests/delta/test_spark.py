"""Spark DataFrames into Delta: once, with lineage, at a version that is found again."""

from __future__ import annotations

import json
import threading

import pytest

from headrace.context import TaskContext, use_context
from headrace.delta.log import TableFiles, commit_versions
from headrace.delta.spark import (
    _until_committed,
    hash_split,
    merge_sql,
    read_table,
    repartition_sorted,
    write_table,
)
from headrace.delta.spark_layout import split_bounds
from headrace.delta.transaction import WriteKey
from headrace.exceptions import ConcurrentWriteError, WriteRequestError
from headrace.profiles.storage import Storage
from tests.delta.written import write_arrow


def task(lake, name="t", attempt=1):
    return use_context(
        TaskContext(run_id="r", task=name, attempt=attempt, lake=str(lake), mlflow_run_id="m")
    )


def versions(uri):
    return commit_versions(TableFiles(str(uri), Storage()))


@pytest.mark.spark
def test_an_attempt_that_runs_again_gets_the_versions_of_the_first(spark, tmp_path):
    frame = spark.range(10).selectExpr("id", "id % 2 as p")

    def attempt(number):
        with task(tmp_path, attempt=number):
            return [
                write_table(frame, "a b", partition_by=["p"]),
                write_table(frame, "a b", mode="append"),
                write_table(frame.where("id < 3"), "merged", mode="merge", merge_on=["id"]),
                write_table(frame.where("id < 5"), "merged", mode="merge", merge_on=["id"]),
            ]

    first = attempt(1)
    assert [(str(ref), ref.row_count) for ref in first] == [
        ("a b@v0", 10),
        ("a b@v1", 20),
        ("merged@v0", 3),
        ("merged@v1", 5),
    ]
    assert attempt(2) == first
    assert versions(tmp_path / "a b") == versions(tmp_path / "merged") == [0, 1]
    kept = (
        "spark.databricks.delta.write.txnAppId",
        "spark.databricks.delta.commitInfo.userMetadata",
    )
    assert [spark.conf.get(name, None) for name in kept] == [None, None]


@pytest.mark.spark
def test_a_reference_is_read_at_its_version_and_noted(spark, tmp_path):
    with task(tmp_path) as context:
        first = write_table(spark.range(3), "t")
        write_table(spark.range(5), "t", mode="append")
        assert read_table(first, spark=spark).count() == 3
        newest = read_table("t", spark=spark)
        write_table(spark.range(7), "t", mode="append")
        assert newest.count() == 8  # pinned when it was opened
        assert [str(seen.ref) for seen in context.reads] == ["t@v0", "t@v1"]
        assert (str(context.writes[0].ref), context.writes[0].mode) == ("t@v0", "overwrite")


@pytest.mark.spark
def test_the_history_of_every_mode_shows_who_wrote_from_what(spark, tmp_path):
    with task(tmp_path, "source"):
        source = write_table(
            spark.range(4).selectExpr("id", "id % 2 as p"), "source", partition_by=["p"]
        )
    with task(tmp_path, "sink") as context:
        frame = read_table(source, spark=spark)
        write_table(frame, "sink", partition_by=["p"])
        write_table(frame.where("p = 1"), "sink", mode="overwrite_partitions")
        write_table(frame.where("p = 0"), "sink", mode="overwrite", replace_where="p = 0")
        write_table(frame, "sink", mode="merge", merge_on=["id"])
        ref = write_table(
            frame.selectExpr("*", "1 as n"), "sink", mode="append", schema_mode="merge"
        )
    assert (ref.version, ref.row_count) == (4, 8)
    for row in spark.sql(f"describe history delta.`{ref.uri}`").collect():
        about = json.loads(row.userMetadata)["headrace"]
        assert (about["run"], about["task"], about["mlflow_run"]) == ("r", "sink", "m")
        assert about["inputs"] == [{"table": "source", "uri": source.uri, "version": 0}]
    assert len(context.writes) == 5


@pytest.mark.spark
def test_writers_that_meet_are_run_again_until_each_has_its_version(spark, tmp_path):
    found, errors = {}, []

    def work(number):
        frame = spark.range(number + 1)
        try:
            found[number] = write_table(frame, str(tmp_path / "t"), key=("run", str(number)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(ref.version for ref in found.values()) == [0, 1, 2]
    for number, ref in found.items():
        assert (ref.row_count, read_table(ref, spark=spark).count()) == (number + 1, number + 1)


@pytest.mark.spark
def test_a_split_is_the_same_whatever_the_cluster_s_shape_and_keeps_keys_together(spark):
    fractions = {"train": 0.8, "validation": 0.1, "test": 0.1}
    frame = spark.range(2000).selectExpr("id", "id % 500 as person", "cast(id as string) text")

    def split(df, seed=1, key=("person", "text")):
        found = hash_split(df, key=key, seed=seed, fractions=fractions)
        return {row.id: row.split for row in found.collect()}

    first = split(frame)
    assert first == split(frame.repartition(7).orderBy("text"))
    assert first != split(frame, seed=2)
    shares = [sum(part == name for part in first.values()) / 2000 for name in fractions]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.03)
    parts = split(frame, key=("person",))
    assert all(parts[i] == parts[i % 500] for i in range(2000))


@pytest.mark.spark
def test_a_sorted_layout_has_the_asked_partitions_and_order(spark, tmp_path):
    frame = spark.range(100).selectExpr("id", "id % 5 as g").repartition(3)
    laid = repartition_sorted(frame, ["g"], partitions=4, sort=["id"])
    parts = laid.rdd.glom().collect()
    assert len(parts) == 4
    assert all(part == sorted(part, key=lambda row: (row.g, row.id)) for part in parts)
    again = repartition_sorted(frame.repartition(9), ["g"], partitions=4, sort=["id"]).rdd.glom()
    assert again.collect() == parts


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mode": "upsert"}, "does not exist"),
        ({"mode": "merge"}, "merge_on"),
        ({"mode": "append", "replace_where": "x = 1"}, "replace_where"),
        ({"mode": "append", "schema_mode": "overwrite"}, "replace its schema"),
        ({"schema_mode": "x"}, "schema_mode"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused_before_spark_is_asked(
    options, word, tmp_path
):
    with pytest.raises(WriteRequestError, match=word):
        write_table(None, str(tmp_path / "t"), **options)


def test_fractions_have_to_add_up_to_one():
    assert split_bounds({"a": 0.1, "b": 0.2, "c": 0.7})[-1] == ("c", 1_000_000)
    with pytest.raises(WriteRequestError, match="add up"):
        split_bounds({"a": 0.1, "b": 0.2})


def test_names_are_quoted_in_a_merge():
    text = merge_sql("s3://b/t`x", "v", ["a`b"], "merge")
    assert text.startswith("MERGE WITH SCHEMA EVOLUTION INTO delta.`s3a://b/t``x` AS target")
    assert "target.`a``b` = source.`a``b`" in text


class ConcurrentAppendException(Exception):  # noqa: N818
    """Named as Delta names it."""


def test_a_commit_is_found_although_its_caller_saw_an_error(tmp_path):
    uri = str(tmp_path / "t")
    files, key = TableFiles(uri, Storage()), WriteKey(parts=("k",))

    def commit_and_fail():
        write_arrow({"id": [1]}, uri, key=("k",))
        raise ConnectionError("the server went away")

    assert _until_committed(commit_and_fail, files, key, "append") == 0


def test_a_conflict_is_tried_again_and_another_error_is_the_caller_s(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    uri = str(tmp_path / "t")
    files, key = TableFiles(uri, Storage()), WriteKey(parts=("k",))
    write_arrow({"id": [0]}, uri)
    tries = []

    def lose(times):
        def action():
            tries.append(1)
            if len(tries) <= times:
                raise ConcurrentAppendException
            write_arrow({"id": [1]}, uri, key=("k",))

        return action

    assert _until_committed(lose(3), files, key, "overwrite") == 1
    tries.clear()
    with pytest.raises(ConcurrentWriteError, match="overwrite"):
        _until_committed(lose(100), files, WriteKey(parts=("other",)), "overwrite")
    with pytest.raises(ZeroDivisionError):
        _until_committed(lambda: 1 / 0, files, WriteKey(parts=("other",)), "overwrite")
