"""Every table that Spark reads, Ray reads the same: value by value, type by type."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from headrace.bridge.read import from_delta
from headrace.delta.arrow import read_arrow
from headrace.exceptions import DataError
from tests.delta import (
    foreign_tables,
    handmade_tables,
    log_layouts,
    odd_files,
    spark_features,
    spark_tables,
)
from tests.delta.same import assert_same, plain, spark_rows

pytestmark = [pytest.mark.spark, pytest.mark.ray]

# Spark can't read these. A reader may, where nothing is lost, but never something wrong.
REFUSED = {
    "catalog_managed", "adaptive_metadata", "same_name_in_two_cases", "file_has_string_for_int",
    "file_has_bool_for_int", "file_has_string_for_date", "file_has_int64_for_timestamp",
    "file_has_date_for_timestamp", "file_has_timestamp_for_date", "file_has_struct_for_map",
    "file_has_list_of_structs_for_list", "file_has_scalar_for_struct", "file_has_double_for_float",
    "metadata_without_a_schema",
}  # fmt: skip
LOSSLESS = {
    "file_has_int64_for_int", "file_has_int8_for_float", "file_has_int64_for_double",
    "file_has_nanos", "file_has_decimal_less_scale", "file_has_decimal_less_precision",
    "file_has_null_type", "file_has_nothing_for_void", "file_has_uint64_for_long",
    "file_has_half_float", "a_list_whose_struct_looks_like_a_level",
}  # fmt: skip
BY_HAND = handmade_tables.TABLES | foreign_tables.TABLES | log_layouts.TABLES | odd_files.TABLES
BY_SPARK = spark_tables.TABLES | spark_features.TABLES
READ = sorted(set(BY_HAND) - REFUSED - LOSSLESS)


QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "true",
}


@pytest.fixture(scope="module", autouse=True)
def quick_spark(spark):
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture(scope="module")
def by_spark(request, spark, quick_spark, tmp_path_factory):
    """What Spark makes of each table by hand: it plans some while others are compared."""
    names = [item.callspec.params["name"] for item in request.session.items if _is_by_hand(item)]
    root = tmp_path_factory.mktemp("by-hand")

    def read(name):
        path = str(root / name)
        BY_HAND[name](path)
        return path, spark_rows(spark.read.format("delta").load(path))

    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(read, name) for name in names}


def _is_by_hand(item):
    return getattr(item, "function", None) is test_a_table_by_hand_reads_as_spark_reads_it


def read_with_ray(path: str) -> pa.Table:
    import ray

    dataset = from_delta(path)
    blocks = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables(blocks) if blocks else dataset.schema().base_schema.empty_table()


def check(path: str, wanted) -> None:
    for got in (read_with_ray(path), read_arrow(path)):
        if isinstance(wanted, list):
            assert sorted((plain(row) for row in got.to_pylist()), key=repr) == wanted
        else:
            assert_same(got, wanted)


@pytest.mark.parametrize("name", BY_SPARK)
def test_a_table_by_spark_reads_as_spark_reads_it(name, spark, ray_cluster, tmp_path):
    made = BY_SPARK[name](spark, str(tmp_path / name)) or str(tmp_path / name)
    check(made, spark_rows(spark.read.format("delta").load(made)))


@pytest.mark.parametrize("name", READ)
def test_a_table_by_hand_reads_as_spark_reads_it(name, by_spark, ray_cluster):
    check(*by_spark[name].result())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_spark_refuses_is_refused_by_name(name, tmp_path):
    path = str(tmp_path / name)
    BY_HAND[name](path)
    with pytest.raises(DataError, match=name):
        read_arrow(path)


@pytest.mark.parametrize("name", sorted(LOSSLESS))
def test_what_only_spark_refuses_is_read_without_loss(name, tmp_path):
    path = str(tmp_path / name)
    BY_HAND[name](path)
    assert read_arrow(path).num_rows in (1, 2, 4)
