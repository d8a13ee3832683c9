"""The change data feed equals Spark's, and "last" goes on where the task ended."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.bridge.changes import last_version, save_cursors
from headrace.bridge.read import from_delta
from headrace.context import TaskContext, use_context
from headrace.delta.changes import commit_changes
from headrace.exceptions import ChangesUnavailableError, ReadRequestError, VersionNotFoundError
from tests.delta.handmade import Log
from tests.delta.same import assert_same
from tests.delta.spark_tables import run

engines = [pytest.mark.spark, pytest.mark.ray]


def read(dataset) -> pa.Table:
    import ray

    blocks = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables(blocks) if blocks else dataset.schema().base_schema.empty_table()


@pytest.fixture(scope="module")
def changed(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("changes") / "t")
    run(spark, path, "create table $t (id int, v string, p int) using delta partitioned by (p) tblproperties "
        "('delta.enableChangeDataFeed'='true', 'delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')",
        "insert into $t select /*+ coalesce(1) */ cast(id as int), concat('v', id), cast(id % 2 as int) from range(20)",
        "delete from $t where id in (3, 4)", "update $t set v = 'new' where id = 5", "delete from $t where id = 6",
        "delete from $t where p = 1", "optimize $t", "restore table $t to version as of 4",
        "alter table $t rename column v to w", "alter table $t add column x int",
        "insert into $t values (100, 'a', 7, 1)", "insert overwrite $t values (1, 'only', 1, 1)")  # fmt: skip
    return path


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.parametrize(("since", "upto"), [(0, 5), (-1, 2), (1, 6), (6, 8), (2, 3), (8, 10)])
def test_changes_are_those_of_sparks_feed(since, upto, spark, ray_cluster, changed):
    frame = spark.read.format("delta").option("readChangeFeed", "true").option(
        "startingVersion", since + 1).option("endingVersion", upto).load(changed)  # fmt: skip
    got = read(from_delta(changed, version=upto, changes_since=since))
    wanted = frame.toArrow()
    # Spark shows the newest schema for the whole range, the pinned read that of its version.
    by_place = [wanted.column_names.index(name) for name in wanted.column_names if name != "x"]
    renamed = (
        wanted.select([wanted.column_names[at] for at in by_place])
        if "x" not in got.column_names
        else wanted
    )
    assert_same(got.rename_columns(renamed.column_names), renamed)


@pytest.mark.spark
@pytest.mark.ray
def test_a_filter_and_columns_apply_to_changes(spark, ray_cluster, changed):
    dataset = from_delta(
        changed,
        version=2,
        changes_since=1,
        columns=["id", "_change_type"],
        filter="id = 3 AND _change_type = 'delete'",
    )
    assert dataset.take_all() == [{"id": 3, "_change_type": "delete"}]


@pytest.mark.spark
@pytest.mark.ray
def test_last_goes_on_where_the_task_ended(spark, ray_cluster, changed, tmp_path):
    context = TaskContext(task="feed", pipeline="p", lake=str(tmp_path))
    with use_context(context):
        assert last_version(context, changed) is None
        assert from_delta(changed, version=1, changes_since="last").count() == 20
        save_cursors()
    again = TaskContext(task="feed", pipeline="p", lake=str(tmp_path))
    with use_context(again):
        assert last_version(again, changed) == 1
        assert from_delta(changed, version=2, changes_since="last").count() == 2
        assert from_delta(changed, version=1, changes_since="last").count() == 0


@pytest.mark.spark
def test_a_feed_that_was_off_is_refused(spark, tmp_path):
    path = str(tmp_path / "off")
    run(spark, path, "create table $t (a int) using delta", "insert into $t values (1)",
        "alter table $t set tblproperties ('delta.enableChangeDataFeed'='true')", "insert into $t values (2)")  # fmt: skip
    with pytest.raises(ChangesUnavailableError, match="off in version 1"):
        from_delta(path, changes_since=0)
    with pytest.raises(VersionNotFoundError, match="newest is version 3"):
        from_delta(path, version=9)
    with pytest.raises(VersionNotFoundError, match="changes since version 4"):
        from_delta(path, changes_since=4)
    with pytest.raises(ReadRequestError, match="no version"):
        from_delta(path, changes_since="yesterday")


def test_commits_that_are_gone_are_named(tmp_path):
    log = Log(tmp_path / "t")
    log.begin(("a", "integer"), conf={"delta.enableChangeDataFeed": "true"})
    for _ in range(3):
        log.commit({"commitInfo": {}})
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").unlink()
    from headrace.exceptions import LogIncompleteError

    with pytest.raises(LogIncompleteError, match=f"{1:020d}.json"):
        from_delta(str(tmp_path / "t"), changes_since=1)


def test_only_the_rows_that_a_vector_added_are_deleted():
    add = {"add": {"path": "f", "deletionVector": {"storageType": "i", "pathOrInlineDv": "new"}}}
    remove = {
        "remove": {"path": "f", "deletionVector": {"storageType": "i", "pathOrInlineDv": "old"}}
    }
    first, second = commit_changes([add, remove])
    assert (
        first["partition:_change_type"],
        first["only"]["pathOrInlineDv"],
        first["dv"]["pathOrInlineDv"],
    ) == ("delete", "new", "old")
    assert (
        second["partition:_change_type"],
        second["only"]["pathOrInlineDv"],
        second["dv"]["pathOrInlineDv"],
    ) == ("insert", "old", "new")


def test_a_rewrite_without_data_change_is_no_change():
    add = {"add": {"path": "f", "dataChange": False}}
    remove = {"remove": {"path": "g", "dataChange": False}}
    assert list(commit_changes([add, remove])) == []
