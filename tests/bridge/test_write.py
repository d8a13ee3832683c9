"""Ray Datasets into Delta: distributed, one commit, exactly once."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.bridge.read import from_delta
from headrace.bridge.write import to_delta
from headrace.context import TaskContext, use_context
from headrace.delta.log import TableFiles, commit_versions, read_commit
from headrace.exceptions import (
    ConstraintViolatedError,
    SchemaMismatchError,
    UnwritableTypeError,
    WriteRequestError,
)
from headrace.profiles.storage import Storage
from tests.delta.test_guards import column, make_table
from tests.delta.written import data_files, live_files, rows_of, write_arrow

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def numbers(count=100, blocks=4):
    import ray

    return ray.data.range(count, override_num_blocks=blocks)


def ids(ref):
    return sorted(rows_of(ref)["id"].to_pylist())


def test_workers_write_files_with_statistics_and_the_driver_commits_once(tmp_path):
    ds = numbers().map_batches(lambda b: {"id": b["id"], "p": b["id"] % 3})
    with use_context(TaskContext(run_id="r", task="t", lake=str(tmp_path))) as context:
        ref = to_delta(ds, "out", partition_by="p")
    assert (str(ref), ref.row_count) == ("out@v0", 100)
    assert ref.file_count >= 3
    assert ids(ref) == list(range(100))
    actions = read_commit(TableFiles(ref.uri, Storage()), 0)
    assert sum("add" in action for action in actions) == ref.file_count
    assert all('"minValues":{"id":' in a["add"]["stats"] for a in actions if "add" in a)
    assert [(made.ref, made.mode) for made in context.writes] == [(ref, "append")]
    with use_context(TaskContext(run_id="r", task="t", attempt=2, lake=str(tmp_path))):
        assert to_delta(ds, "out", partition_by="p") == ref
    assert data_files(ref.uri) == live_files(ref.uri)


def test_every_mode_runs_on_the_workers(tmp_path):
    import ray

    uri = str(tmp_path / "t")
    ds = numbers(30).map_batches(lambda b: {"id": b["id"], "p": b["id"] % 3, "x": b["id"] * 0})
    to_delta(ds, uri, partition_by=["p"])
    small = lambda rows: ray.data.from_items([{"id": i, "p": p, "x": 1} for i, p in rows])  # noqa: E731
    ref = to_delta(small([(3, 0), (300, 1)]), uri, mode="merge", merge_on="id")
    assert ids(ref) == [*range(30), 300]
    assert sum(rows_of(ref)["x"].to_pylist()) == 2
    ref = to_delta(small([(1, 1)]), uri, mode="overwrite_partitions")
    assert ids(ref) == sorted([1, *(i for i in range(30) if i % 3 != 1)])
    ref = to_delta(small([(50, 2)]), uri, mode="overwrite", replace_where="id >= 10 and p = 2")
    assert ids(ref) == sorted(
        [1, 50, *(i for i in range(30) if i % 3 == 0 or (i % 3 == 2 and i < 10))]
    )
    ref = to_delta(small([(7, 1)]), uri, mode="overwrite")
    assert ids(ref) == [7]
    assert data_files(uri) == live_files(uri)


def test_a_table_is_overwritten_with_what_was_read_from_it(tmp_path):
    ref = write_arrow({"id": list(range(10)), "s": ["x"] * 10}, str(tmp_path / "t"))
    ds = from_delta(ref).map_batches(
        lambda b: b.filter(pa.compute.less(b["id"], 5)), batch_format="pyarrow"
    )
    after = to_delta(ds, ref, mode="overwrite")
    assert (after.version, ids(after)) == (1, [0, 1, 2, 3, 4])
    assert ids(ref) == list(range(10))


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_types_survive_the_way_through_ray_in_every_batch_format(tmp_path, batch_format):
    data = pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "ts": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(2020, 1, 1)] * 3),
            "f": pa.array([0.1, 0.2, 0.3], pa.float32()),
            "l": pa.array([[1.0], [2.0, 3.0], []]),
            "s": ["a", "b", "c"],
        }
    )
    ref = write_arrow(data, str(tmp_path / "t"))
    ds = from_delta(ref).map_batches(lambda batch: batch, batch_format=batch_format)
    after = to_delta(ds, ref, mode="overwrite")
    assert rows_of(after).sort_by("id").equals(rows_of(ref).sort_by("id"))


def test_tensors_and_columns_that_start_with_nulls_find_their_type(tmp_path):
    import ray

    ds = numbers(4, 2).map_batches(lambda b: {"id": b["id"], "t": np.ones((len(b["id"]), 2, 2))})
    ref = to_delta(ds, str(tmp_path / "tensor"))
    assert rows_of(ref)["t"].to_pylist()[0] == [[1.0, 1.0], [1.0, 1.0]]
    blocks = [pa.table({"id": [1], "s": pa.nulls(1)}), pa.table({"id": [2], "s": ["x"]})]
    ref = to_delta(ray.data.from_arrow(blocks), str(tmp_path / "late"))
    assert sorted(rows_of(ref)["s"].to_pylist(), key=str) == [None, "x"]
    blocks[0] = blocks[0].append_column("more", pa.array([1.5]))
    with pytest.raises(UnwritableTypeError, match="no type"):
        to_delta(ray.data.from_arrow(blocks[:1]), str(tmp_path / "never"))
    clash = [
        pa.table({"id": [1], "s": pa.nulls(1)}),
        pa.table({"id": [2], "s": ["x"]}),
        pa.table({"id": [2], "s": [1]}),
    ]
    with pytest.raises(SchemaMismatchError, match="differ in the type of column 's'"):
        to_delta(ray.data.from_arrow(clash), str(tmp_path / "clash"))
    assert list((tmp_path / "clash").rglob("*.parquet")) == []


def test_an_empty_dataset_with_a_schema_makes_a_table_and_one_without_is_refused(tmp_path):
    import ray
    from ray.data.expressions import col

    empty = ray.data.from_arrow(pa.table({"a": pa.array([], pa.int8())}))
    ref = to_delta(empty, str(tmp_path / "empty"))
    assert (ref.version, ref.row_count, rows_of(ref).schema.names) == (0, 0, ["a"])
    ref = to_delta(numbers().filter(expr=col("id") < 0), str(tmp_path / "filtered"))
    assert (ref.row_count, rows_of(ref).schema.names) == (0, ["id"])
    with pytest.raises(SchemaMismatchError, match="no columns"):
        to_delta(ray.data.from_items([]), str(tmp_path / "none"))
    assert to_delta(ray.data.from_items([]), ref).version == 1
    assert rows_of(ref).num_rows == 0


def test_a_row_that_breaks_a_rule_is_named_by_the_error_and_nothing_is_left(tmp_path):
    uri = make_table(
        tmp_path / "t",
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
        fields=[column("id", nullable=False)],
        configuration={"delta.constraints.small": "id < 90"},
    )
    with pytest.raises(ConstraintViolatedError, match=r"CHECK small[\s\S]*id=9") as caught:
        to_delta(numbers(), uri)
    assert caught.value.constraint == "CHECK small"
    assert data_files(uri) == set()
    with pytest.raises(SchemaMismatchError, match="more"):
        to_delta(numbers().map_batches(lambda b: {**b, "more": b["id"]}), uri)
    with pytest.raises(WriteRequestError):
        to_delta(numbers(), uri, mode="merge")
    assert commit_versions(TableFiles(uri, Storage())) == [0]


def test_a_failing_function_fails_the_write_with_its_own_error_and_leaves_no_file(tmp_path):
    def fail_late(batch):
        if batch["id"][0] >= 75:
            raise ValueError("my own words")
        return batch

    uri = str(tmp_path / "t")
    with pytest.raises(Exception, match="my own words"):
        to_delta(numbers(100, 20).map_batches(fail_late, batch_size=5), uri)
    assert not Path(uri, "_delta_log").exists()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_worker_that_is_killed_in_mid_write_leaves_one_copy_and_no_orphan(tmp_path):
    flag, uri = str(tmp_path / "killed"), str(tmp_path / "t")

    def die_once(batch):
        if batch["id"][-1] >= 50 and not Path(flag).exists():
            Path(flag).touch()
            os._exit(1)
        return batch

    ref = to_delta(numbers(100, 4).map_batches(die_once, batch_size=5), uri)
    assert Path(flag).exists()
    assert ids(ref) == list(range(100))
    assert data_files(uri) == live_files(uri)


def test_an_error_in_a_function_of_the_user_comes_as_it_was_raised(tmp_path):
    def fail(batch):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        to_delta(numbers().map_batches(fail), str(tmp_path / "t"))
    assert type(caught.value) is ZeroDivisionError
    assert not list(tmp_path.rglob("*.parquet"))
