"""A version rebuilt from its log is what the protocol says it is."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta import actions, statistics
from headrace.delta.segments import list_log, plan_segments, sort_log_files
from headrace.delta.snapshot import load_snapshot, schema_hash
from headrace.exceptions import (
    LogCorruptError,
    LogIncompleteError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from tests.delta.handmade import Log, schema_json

FIELDS = (("a", "long"), ("p", "string"))


def begin(path, *adds):
    return Log(path).begin(
        *FIELDS, partitions=["p"], more=adds, reader=3, writer=7, features=["deletionVectors"]
    )


def live(path, **options):
    return sorted(load_snapshot(str(path), **options).files["path"].to_pylist())


def test_a_version_has_what_was_added_and_not_removed_up_to_it(tmp_path):
    log = begin(tmp_path, Log.add("x"), Log.add("y"))
    log.commit(Log.add("z"), Log.remove("x"))
    assert live(tmp_path) == ["y", "z"]
    assert live(tmp_path, version=0) == ["x", "y"]


def test_the_reference_tells_version_rows_and_files(tmp_path):
    begin(tmp_path, Log.add("x", stats={"numRecords": 3}), Log.add("y", stats={"numRecords": 4}, dv={
        "storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1, "cardinality": 2}))  # fmt: skip
    ref = load_snapshot(str(tmp_path)).ref("t")
    assert (ref.version, ref.row_count, ref.file_count, ref.name) == (0, 5, 2, "t")


def test_rows_are_unknown_when_one_file_does_not_tell(tmp_path):
    begin(tmp_path, Log.add("x", stats={"numRecords": 3}), Log.add("y"))
    assert load_snapshot(str(tmp_path)).row_count is None


def test_the_hash_of_a_schema_does_not_see_how_it_is_written():
    text = schema_json(*FIELDS)
    assert schema_hash(text) == schema_hash(json.dumps(json.loads(text), indent=2))
    assert schema_hash(text) != schema_hash(schema_json(("b", "long")))


OPERATIONS = st.lists(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abcdef"), st.sampled_from([None, "d1", "d2"])),
        max_size=5,
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=100)
@given(OPERATIONS, st.booleans(), st.none() | st.integers(0, 5))
def test_replay_equals_a_loop_over_the_actions(tmp_path_factory, commits, columnar, checkpoint_at):
    path = tmp_path_factory.mktemp("replay")
    log, files = begin(path), {}
    for number, commit in enumerate(commits):
        done = []
        for adds, name, vector in commit:
            dv = vector and {
                "storageType": "u",
                "pathOrInlineDv": vector,
                "sizeInBytes": 1,
                "cardinality": 1,
            }
            partition = {"p": name + str(number)}
            done.append(
                Log.add(name, partition=partition, dv=dv) if adds else Log.remove(name, dv=dv)
            )
            files.pop((name, vector), None)
            if adds:
                files[name, vector] = name + str(number)
        log.commit(*done)
        if checkpoint_at == number:
            write_checkpoint(log, files)
    before = actions._COLUMNAR_FROM
    actions._COLUMNAR_FROM = 1 if columnar else 1000
    try:
        found = load_snapshot(str(path)).files
    finally:
        actions._COLUMNAR_FROM = before
    vectors = [dv and dv["pathOrInlineDv"] for dv in found["dv"].to_pylist()]
    got = list(
        zip(found["path"].to_pylist(), vectors, found["partition:p"].to_pylist(), strict=True)
    )
    assert sorted(got, key=repr) == sorted(
        ((*key, value) for key, value in files.items()), key=repr
    )


def write_checkpoint(log, files):
    """A checkpoint of the newest version; the commits before it are removed."""
    folder = log.path / "_delta_log"
    head = (
        [json.loads(line) for line in (folder / f"{0:020d}.json").read_text().splitlines()]
        if (folder / f"{0:020d}.json").exists()
        else []
    )
    rows = [
        {
            "protocol": row.get("protocol"),
            "metaData": row.get("metaData")
            and row["metaData"] | {"format": {"provider": "parquet"}, "configuration": []},
            "add": None,
        }
        for row in head
    ]
    for (name, vector), value in files.items():
        dv = vector and {
            "storageType": "u",
            "pathOrInlineDv": vector,
            "offset": None,
            "sizeInBytes": 1,
            "cardinality": 1,
        }
        rows.append(
            {
                "protocol": None,
                "metaData": None,
                "add": {
                    "path": name,
                    "partitionValues": [("p", value)],
                    "size": 1,
                    "deletionVector": dv,
                },
            }
        )
    text_map = pa.map_(pa.string(), pa.string())
    schema = pa.schema([
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
                                ("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string()))])),
        ("metaData", pa.struct([("id", pa.string()), ("format", pa.struct([("provider", pa.string())])), ("schemaString", pa.string()),
                                ("partitionColumns", pa.list_(pa.string())), ("configuration", text_map)])),
        ("add", pa.struct([("path", pa.string()), ("partitionValues", text_map), ("size", pa.int64()), ("deletionVector", actions.DV_TYPE)])),
    ])  # fmt: skip
    version = log.version - 1
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema), folder / f"{version:020d}.checkpoint.parquet"
    )
    for old in range(version + 1):
        (folder / f"{old:020d}.json").unlink(missing_ok=True)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.none() | st.integers(0, 9) | st.just("bad"), min_size=1, max_size=8))
def test_columnar_statistics_are_those_that_json_gives(values):
    texts = [
        None if value is None else json.dumps({"numRecords": value, "minValues": {"n": 1.25}})
        for value in values
    ]
    files = pa.table({"stats": pa.array(texts, pa.string())})
    wanted = [
        (("numRecords",), pa.int64()),
        (("minValues", "n"), pa.decimal128(12, 2)),
        (("nullCount", "n"), pa.int64()),
    ]
    plain = statistics.stats_columns(files, wanted)
    before, statistics._COLUMNAR_FROM = statistics._COLUMNAR_FROM, 0
    try:
        assert statistics.stats_columns(files, wanted) == plain
    finally:
        statistics._COLUMNAR_FROM = before
    assert plain[0].to_pylist() == [value if isinstance(value, int) else None for value in values]


def test_missing_log_files_are_named(tmp_path):
    log = begin(tmp_path, Log.add("x"))
    for name in "yz":
        log.commit(Log.add(name))
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(LogIncompleteError, match=f"{1:020d}.json"):
        load_snapshot(str(tmp_path))
    assert live(tmp_path, version=0) == ["x"]


def test_what_is_no_table_or_no_version_is_named(tmp_path):
    with pytest.raises(TableNotFoundError, match="no _delta_log"):
        load_snapshot(str(tmp_path))
    begin(tmp_path)
    with pytest.raises(VersionNotFoundError, match="newest is version 0"):
        load_snapshot(str(tmp_path), version=1)


def test_a_damaged_commit_is_named(tmp_path):
    begin(tmp_path).commit('{"metaData": {"id"')
    with pytest.raises(LogCorruptError, match=f"{1:020d}.json"):
        load_snapshot(str(tmp_path))


def test_a_damaged_checkpoint_is_passed_over_while_the_commits_are_there(tmp_path):
    begin(tmp_path, Log.add("x")).commit(Log.add("y"))
    name = tmp_path / "_delta_log" / f"{1:020d}.checkpoint.parquet"
    adds = pa.array([{"path": f"f{number}"} for number in range(50)])
    pq.write_table(pa.table({"add": adds}), name, compression="none")
    whole = name.read_bytes()
    for damaged in (b"PAR1 nothing PAR1", whole[:4] + b"\xff" * 40 + whole[44:], whole[:-50]):
        name.write_bytes(damaged)
        assert live(tmp_path) == ["x", "y"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_partition_values_of_a_checkpoint_may_be_texts_of_any_kind(tmp_path, kind):
    log = begin(tmp_path)
    values = [[("p", "x")], None, [], [("q", "y"), ("p", None)]]
    pairs = [[(k, v) for k, v in row] if row is not None else None for row in values]
    if pa.types.is_binary(kind):
        pairs = [row and [(k.encode(), v and v.encode()) for k, v in row] for row in pairs]
    fields = [pa.array(["a", "b", "c", "d"]), pa.array(pairs, pa.map_(kind, kind))]
    adds = pa.StructArray.from_arrays(fields, ["path", "partitionValues"])
    path = tmp_path / "_delta_log" / f"{1:020d}.checkpoint.parquet"
    write_checkpoint(log, {})
    (tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet").rename(path)
    head = pq.read_table(path).drop_columns(["add"])
    added = pa.table({"add": pa.concat_arrays([pa.nulls(head.num_rows, adds.type), adds])})
    padded = pa.concat_tables([head, pa.table({"x": [1] * 4})], promote_options="default")
    table = padded.drop_columns(["x"]).append_column("add", added["add"])
    pq.write_table(table, path)
    found = load_snapshot(str(tmp_path)).files
    assert found["partition:p"].to_pylist() == ["x", None, None, None]


def test_an_incomplete_checkpoint_in_parts_is_no_checkpoint():
    names = [f"{4:020d}.checkpoint.{part:010d}.{3:010d}.parquet" for part in (1, 3)]
    files = [(f"{number:020d}.json", 1, 0) for number in range(6)]
    listing = sort_log_files([*files, *((name, 1, 0) for name in names)])
    assert listing.checkpoints == ()
    assert len(plan_segments(listing, "t", 5)[0].commits) == 6


def test_a_time_is_resolved_through_the_log(tmp_path):
    log = begin(tmp_path, Log.add("x"))
    log.commit(Log.add("y"))
    log.commit(Log.add("z"))
    # The clock went back between the commits: Delta counts the second one a millisecond later.
    for version, seconds in enumerate((1_600_000_000, 1_500_000_000, 1_700_000_000)):
        os.utime(tmp_path / "_delta_log" / f"{version:020d}.json", (seconds, seconds))
    assert live(tmp_path, timestamp="2020-09-13T12:26:40Z") == ["x"]
    assert live(tmp_path, timestamp="2020-09-13 12:26:40.001") == ["x", "y"]
    assert live(tmp_path, timestamp="2023-11-14T22:13:20+00:00") == ["x", "y", "z"]
    for outside in ("2001-01-01", "2030-01-01"):
        with pytest.raises(VersionNotFoundError, match="version 0 at 2020-09-13"):
            load_snapshot(str(tmp_path), timestamp=outside)


def test_in_commit_timestamps_count_before_the_files_times(tmp_path):
    log = begin(tmp_path, Log.add("x"))
    log.commit({"commitInfo": {"inCommitTimestamp": 4_000_000_000_000}}, Log.add("y"))
    assert live(tmp_path, timestamp="2096-10-02T07:06:40Z") == ["x", "y"]
    assert live(tmp_path, timestamp="2096-10-02T07:06:39Z") == ["x"]


@pytest.mark.parametrize("feature", ["catalogManaged", "adaptiveMetadata-preview", "somethingNew"])
def test_an_unknown_reader_feature_is_refused_by_name(tmp_path, feature):
    Log(tmp_path).begin(*FIELDS, reader=3, writer=7, features=[feature])
    with pytest.raises(UnsupportedTableError, match=feature):
        load_snapshot(str(tmp_path))


def test_features_that_only_writers_need_do_not_matter(tmp_path):
    Log(tmp_path).begin(*FIELDS, reader=1, writer=7, features=["somethingNew", "rowTracking"])
    assert live(tmp_path) == []


def test_the_listing_ignores_what_is_no_log_file(tmp_path):
    begin(tmp_path)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 70}')
    (tmp_path / "_delta_log" / "_commits").mkdir()
    from pyarrow import fs

    assert list_log(fs.LocalFileSystem(), str(tmp_path)).latest == 0
