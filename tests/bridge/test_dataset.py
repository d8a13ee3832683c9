"""Ray's own expectations hold on a Dataset from a Delta table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.bridge.read import from_delta
from headrace.exceptions import (
    CpusBusyError,
    FilterError,
    RowCountError,
    SnapshotExpiredError,
    VersionNotFoundError,
)
from tests.delta.handmade import Log

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """1,000 rows in 20 files with statistics; `x` is null in every tenth row."""
    log = Log(tmp_path_factory.mktemp("numbers") / "t")
    adds = []
    for number in range(20):
        ids = list(range(number * 50, number * 50 + 50))
        data = pa.table(
            {
                "id": ids,
                "x": [None if value % 10 == 0 else value / 2 for value in ids],
                "s": [f"s{value}" for value in ids],
            }
        )
        stats = {
            "numRecords": 50,
            "minValues": {"id": ids[0]},
            "maxValues": {"id": ids[-1]},
            "nullCount": {"id": 0},
        }
        adds.append(
            log.file(
                f"k={number % 4}/f{number}.parquet",
                data,
                partition={"k": str(number % 4)},
                stats=stats,
            )
        )
    log.begin(
        ("id", "long"),
        ("x", "double"),
        ("s", "string"),
        ("k", "integer"),
        partitions=["k"],
        more=adds,
    )
    return str(log.path)


@pytest.fixture
def dataset(ray_cluster, numbers):
    return from_delta(numbers)


def test_schema_and_count_need_no_read(dataset):
    assert dataset.schema().base_schema == pa.schema(
        [("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("k", pa.int32())]
    )
    assert dataset.count() == 1000


def test_planning_asks_no_data_file_for_anything(ray_cluster, tmp_path):
    log = Log(tmp_path / "t")
    adds = [log.add(f"{n}.parquet", 1000, stats={"numRecords": 7}) for n in range(300)]
    log.begin(("a", "long"), more=adds)  # and none of the files is there
    dataset = from_delta(str(log.path))
    assert (dataset.schema().names, dataset.count()) == (["a"], 2100)


def test_a_time_pins_the_version_that_was_current_then(ray_cluster, tmp_path):
    log = Log(tmp_path / "t")
    log.begin(("a", "long"), more=[log.file("0.parquet", {"a": [0]})])
    log.commit(log.file("1.parquet", {"a": [1]}))
    for version, seconds in enumerate((1_600_000_000, 1_600_000_100)):
        os.utime(log.path / "_delta_log" / f"{version:020d}.json", (seconds, seconds))
    for second, rows in (("40", 1), ("50", 1), ("59", 1)):
        assert from_delta(log.path, timestamp=f"2020-09-13T12:26:{second}Z").count() == rows
    assert from_delta(log.path, timestamp="2020-09-13 12:28:20").count() == 2
    with pytest.raises(VersionNotFoundError, match=r"to version 1 at 2020-09-13T12:28:20"):
        from_delta(log.path, timestamp="2020-09-13 12:28:21")


def test_torch_gets_batches(dataset):
    torch = pytest.importorskip("torch")
    batches = list(dataset.select_columns(["id", "k"]).iter_torch_batches(batch_size=300))
    assert sum(len(batch["id"]) for batch in batches) == 1000
    assert batches[0]["k"].dtype == torch.int32


def test_the_map_fuses_with_the_read(dataset):
    stats = dataset.map_batches(lambda batch: batch, batch_format="pyarrow").materialize().stats()
    assert "ReadDelta->MapBatches" in stats


def test_sort_groupby_join_and_shuffle(dataset):
    assert [row["id"] for row in dataset.sort("id", descending=True).take(2)] == [999, 998]
    counts = {row["k"]: row["count()"] for row in dataset.groupby("k").count().take_all()}
    assert counts == dict.fromkeys(range(4), 250)
    other = from_delta_names(dataset)
    joined = dataset.join(other, join_type="inner", num_partitions=2, on=("s",), right_on=("name",))
    assert joined.count() == 10
    assert sorted(row["id"] for row in dataset.random_shuffle(seed=1).take_all()) == list(
        range(1000)
    )


def from_delta_names(dataset):
    import ray

    return ray.data.from_arrow(
        pa.table({"name": [f"s{number}" for number in range(10)], "y": range(10)})
    )


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_batches_of_every_format(dataset, batch_format):
    def double(batch):
        if batch_format == "pyarrow":
            return batch.append_column("d", pa.compute.multiply(batch["id"], 2))
        batch["d"] = batch["id"] * 2
        return batch

    assert dataset.map_batches(double, batch_format=batch_format).sum("d") == 999_000


def test_pandas_parquet_and_splits(dataset, tmp_path):
    frame = dataset.to_pandas()
    assert (
        len(frame),
        int(frame["x"].isna().sum()),
        str(frame["k"].dtype).removesuffix("[pyarrow]"),
    ) == (1000, 100, "int32")
    dataset.write_parquet(str(tmp_path / "out"))
    assert pq.read_table(tmp_path / "out").num_rows == 1000
    train, test = dataset.train_test_split(0.25)
    assert (train.count(), test.count()) == (750, 250)
    shards = dataset.streaming_split(1)
    assert sum(len(batch["id"]) for batch in shards[0].iter_batches(batch_size=100)) == 1000


def test_limit_stops_early(dataset):
    assert len(dataset.limit(7).take_all()) == 7


def test_filters_and_selections_are_pushed_into_the_read(dataset, numbers):
    from ray.data.expressions import col

    pushed = (
        dataset.filter(expr=(col("id") >= 990) & (col("k") == 3))
        .select_columns(["s"])
        .materialize()
    )
    assert pushed.count() == 10
    assert "Filter" not in pushed.stats()
    assert "Project" not in pushed.stats()
    assert dataset.filter(expr=col("x").is_null()).count() == 100
    assert dataset.filter(expr=col("id").not_in([1, 2])).count() == 998
    assert dataset.filter(expr=~(col("x") > 1)).count() == 2


def test_filters_of_the_read_count_null_and_nan_as_spark_does(ray_cluster, numbers):
    from ray.data.expressions import col

    assert from_delta(numbers, filter="NOT x > 1").count() == 2
    assert from_delta(numbers, filter="x IS NULL AND k = 1").count() == 25
    assert (
        from_delta(numbers, filter=(col("id") > 990) | (col("s") == "s5"), columns=["S"]).count()
        == 10
    )
    assert from_delta(numbers, filter=col("id") * 2 > 1990, columns=["k"]).count() == 4
    with pytest.raises(FilterError, match="does not fit"):
        from_delta(numbers, filter="id = 'x'")
    with pytest.raises(FilterError, match=r"upper\(\)"):
        from_delta(numbers, filter="upper(s) = 'S1'")


def test_an_empty_table_keeps_its_schema(ray_cluster, tmp_path):
    Log(tmp_path / "t").begin(("a", "integer"), ("b", "string"))
    empty = from_delta(str(tmp_path / "t"))
    assert empty.schema().names == ["a", "b"]
    assert empty.count() == 0
    assert empty.materialize().schema().types == [pa.int32(), pa.string()]
    assert empty.sort("a").take_all() == []


def test_no_columns_still_have_rows(ray_cluster, numbers):
    assert from_delta(numbers, columns=[]).count() == 1000


def test_a_vacuumed_file_is_named(ray_cluster, tmp_path):
    log = Log(tmp_path / "t")
    log.begin(("a", "integer"), more=[log.file("gone.parquet", {"a": pa.array([1], pa.int32())})])
    dataset = from_delta(str(log.path))
    (log.path / "gone.parquet").unlink()
    with pytest.raises(
        SnapshotExpiredError, match=r"Version 0 of .*/t needs a file .*/t/gone.parquet"
    ):
        dataset.materialize()


def test_a_file_that_was_replaced_by_one_with_other_rows_is_an_error(ray_cluster, tmp_path):
    log = Log(tmp_path / "t")
    log.begin(("a", "long"), more=[log.file("f.parquet", {"a": [1, 2]}, stats={"numRecords": 2})])
    dataset = from_delta(str(log.path))
    log.file("f.parquet", {"a": [1]})
    with pytest.raises(RowCountError, match="log says 2, the file holds 1"):
        dataset.materialize()


def test_all_rows_come_where_the_log_miscounts_them(ray_cluster, tmp_path):
    log = Log(tmp_path / "t")
    adds = [log.file(f"{n}.parquet", {"a": [1, 2]}, stats={"numRecords": n}) for n in (1, 3)]
    log.begin(("a", "long"), more=adds)
    dataset = from_delta(str(log.path))
    assert [row["a"] for row in dataset.take_all()] == [1, 2, 1, 2]
    assert dataset.map_batches(lambda batch: batch).count() == 4
    assert dataset.materialize().count() == 4
    assert len(dataset.limit(3).take_all()) == 3
    assert [part.count() for part in dataset.split_at_indices([1])] == [1, 3]


def test_a_worker_that_dies_is_replaced_and_no_row_is_lost_or_doubled(
    ray_cluster, numbers, tmp_path
):
    mark = tmp_path / "died"

    def die_once(batch):
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return batch

    found = from_delta(numbers).map_batches(die_once, batch_format="pyarrow").take_all()
    assert mark.exists()
    assert sorted(row["id"] for row in found) == list(range(1000))


def test_when_others_hold_every_cpu_the_read_says_who(ray_cluster, numbers):
    import ray
    from ray.data import DataContext

    from headrace.bridge.waiting import WAIT_SETTING

    @ray.remote(num_cpus=2)
    class Trainer:
        def ready(self):
            return True

    holder = Trainer.remote()
    ray.get(holder.ready.remote())
    context = DataContext.get_current()
    context.set_config(WAIT_SETTING, 2)
    try:
        with pytest.raises(CpusBusyError, match="actor Trainer"):
            from_delta(numbers).materialize()
    finally:
        context.remove_config(WAIT_SETTING)
        ray.kill(holder)


def test_credentials_show_nowhere(ray_cluster, numbers):
    from pydantic import SecretStr

    from headrace.bridge.read import plain_request
    from headrace.delta.snapshot import load_snapshot
    from headrace.profiles.storage import Storage

    snapshot = load_snapshot(numbers)
    request = plain_request(snapshot)
    secret = request.spec.__class__(
        **{
            **request.spec.__dict__,
            "storage": Storage(
                kind="s3", access_key=SecretStr("hush-hush"), secret_key=SecretStr("hush-hush")
            ),
        }
    )
    assert "hush-hush" not in repr(secret) + str(secret)


def test_a_table_that_moved_is_read_at_its_new_place(ray_cluster, numbers, tmp_path):
    shutil.copytree(numbers, tmp_path / "copy")
    assert from_delta(Path(tmp_path / "copy")).count() == 1000
