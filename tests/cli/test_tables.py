from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headrace.cli.table_advice import MIB, advise_partitions, advise_sizes

LINEAGE = {
    "headrace": {
        "run": "261129-120000-abcd",
        "task": "load",
        "item": "AA",
        "attempt": 2,
        "inputs": [{"table": "raw", "uri": "/lake/raw", "version": 3}],
    }
}


@pytest.fixture
def lake(project):
    """Two tables; the second has three versions, one of them by a headrace task."""
    lake = project / ".headrace" / "lake"
    rows = pa.table(
        {"id": [1, 2, 3], "month": [1, 1, 2], "at": [{"x": 1, "tags": [{"k": "v"}]}] * 3}
    )
    write_deltalake(lake / "flights", rows, partition_by=["month"])
    table = lake / "staging" / "weather"
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(LINEAGE)})
    write_deltalake(table, rows, commit_properties=properties)
    write_deltalake(table, rows, mode="append")
    DeltaTable(table).delete("id = 1")
    (lake / "not a table").mkdir()
    return lake


def test_list_finds_tables_at_any_depth(headrace, lake):
    tables = json.loads(headrace("tables", "list", "--json").stdout)
    assert [(t["name"], t["version"], t["rows"]) for t in tables] == [
        ("flights", 0, 3),
        ("staging/weather", 2, 4),
    ]
    assert tables[0]["uri"] == str(lake / "flights")
    shown = headrace("tables", "list").stdout
    assert "staging/weather" in shown


def test_list_of_an_empty_lake_says_how_to_fill_it(headrace):
    result = headrace("tables", "list")
    assert result.exit_code == 0
    assert "No tables yet." in result.stdout
    assert json.loads(headrace("tables", "list", "--json").stdout) == []


def test_list_shows_a_broken_table_beside_the_others(headrace, lake):
    log = lake / "flights" / "_delta_log" / "00000000000000000000.json"
    log.write_text("{ not json\n")
    result = headrace("tables", "list", "--json")
    broken, whole = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (broken["name"], broken["version"]) == ("flights", None)
    assert broken["problem"]
    assert (whole["name"], whole["problem"]) == ("staging/weather", None)


def test_show_tells_schema_size_and_who_wrote_what(headrace, lake):
    shown = json.loads(headrace("tables", "show", "staging/weather", "--json").stdout)
    assert (shown["version"], shown["rows"]) == (2, 4)
    assert [(column["path"], column["type"]) for column in shown["schema"]] == [
        ("id", "long"),
        ("month", "long"),
        ("at", "struct"),
        ("at.x", "long"),
        ("at.tags", "array<struct>"),
        ("at.tags.k", "string"),
    ]
    assert [commit["version"] for commit in shown["history"]] == [2, 1, 0]
    first = shown["history"][-1]
    assert (first["run"], first["task"], first["attempt"]) == ("261129-120000-abcd", "load/AA", 2)
    assert first["inputs"] == ["raw@v3"]
    assert first["rows"] == 3
    assert shown["history"][0]["operation"] == "DELETE"
    text = headrace("tables", "show", "staging/weather", "--limit", "2").stdout
    assert "4 rows in" in text
    assert "261129-120000-abcd" not in text


def test_show_of_an_older_version_shows_that_version(headrace, lake):
    shown = json.loads(headrace("tables", "show", "staging/weather", "-v", "0", "--json").stdout)
    assert (shown["version"], shown["rows"]) == (0, 3)


def test_show_takes_a_path_as_well(headrace, lake):
    shown = json.loads(headrace("tables", "show", str(lake / "flights"), "--json").stdout)
    assert shown["partition_columns"] == ["month"]


def test_an_unknown_table_names_the_closest_one(headrace, lake):
    result = headrace("tables", "show", "flihts")
    assert result.exit_code == 2
    assert "Tables in the lake: flights, staging/weather." in result.stderr
    assert "headrace tables show flights (closest name)" in result.stderr


def test_an_unknown_version_ends_with_2(headrace, lake):
    result = headrace("tables", "show", "flights", "--version", "9")
    assert result.exit_code == 2
    assert "version 9" in result.stderr


def test_check_names_features_duties_and_advice(headrace, lake):
    DeltaTable(lake / "flights").alter.add_constraint({"positive": "id > 0"})
    checked = json.loads(headrace("tables", "check", "flights", "--json").stdout)
    assert checked["writers_honour"] == ["CHECK positive: id > 0"]
    assert checked["advice"] == []
    text = headrace("tables", "check", "flights").stdout
    assert "All of it can be read." in text
    assert "a writer honours: CHECK positive: id > 0" in text


def test_check_says_which_writes_would_be_refused_and_why(headrace, lake):
    checked = json.loads(headrace("tables", "check", "flights", "--json").stdout)
    assert checked["write_refusals"] == {}
    DeltaTable(lake / "flights").alter.set_table_properties({"delta.appendOnly": "true"})
    checked = json.loads(headrace("tables", "check", "flights", "--json").stdout)
    assert set(checked["write_refusals"]) == {"overwrite", "merge"}
    assert "refuse mode='merge': delta.appendOnly" in headrace("tables", "check", "flights").stdout


def test_check_refuses_a_table_that_would_come_out_wrong(headrace, lake):
    log = lake / "flights" / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["fromTheFuture"],
                "writerFeatures": ["fromTheFuture"],
            }
    log.write_text("\n".join(json.dumps(action) for action in actions))
    result = headrace("tables", "check", "flights")
    assert result.exit_code == 2
    assert "fromTheFuture" in result.stderr


def test_many_small_files_are_worth_joining():
    assert advise_sizes([MIB] * 15, uri="/t") == []
    (found,) = advise_sizes([MIB] * 40 + [64 * MIB] * 8, uri="/t")
    assert found.found == "40 of 48 files are below 16.0 MiB"
    assert "OPTIMIZE" in found.advice


def test_one_file_far_above_the_others_is_skew():
    assert advise_sizes([100 * MIB, 2000 * MIB], uri="/t") == []
    (found,) = advise_sizes([100 * MIB] * 5 + [2000 * MIB], uri="/t")
    assert found.found == "the largest file has 2.0 GiB, the median 100.0 MiB"


def test_one_partition_far_above_the_others_is_skew():
    even = {(str(day),): 20 * MIB for day in range(9)}
    assert advise_partitions(even, ["day"]) == []
    (found,) = advise_partitions({**even, ("9",): 900 * MIB}, ["day"])
    assert found.found == "partition day = 9 has 900.0 MiB, the median 20.0 MiB"


def test_very_many_tiny_partitions_are_too_fine():
    (found,) = advise_partitions({(str(key),): 1000 for key in range(500)}, ["id"])
    assert found.advice == "partition by something coarser"
