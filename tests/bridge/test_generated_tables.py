"""Tables that Hypothesis makes up: Ray reads what Spark reads, and Spark reads what Ray writes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from headrace.bridge.read import from_delta
from headrace.bridge.write import to_delta
from tests.delta.generated_tables import Made
from tests.delta.same import assert_same
from tests.delta.table_strategies import tables

pytestmark = [pytest.mark.spark, pytest.mark.ray]

# Always the same few; `--generated=500` makes up others.
FEW = 10


def arrow_of(dataset) -> pa.Table:
    import ray

    blocks = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables(blocks) if blocks else dataset.schema().base_schema.empty_table()


def test_made_up_tables_read_and_come_back_as_spark_reads_them(
    spark, ray_cluster, tmp_path_factory, pytestconfig
):
    wanted_number = pytestconfig.getoption("generated")

    def load(path, condition=None):
        frame = spark.read.format("delta").load(path)
        return (frame if condition is None else frame.where(condition)).toArrow()

    @settings(
        max_examples=wanted_number or FEW,
        derandomize=not wanted_number,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(tables())
    def check(made: Made) -> None:
        folder = tmp_path_factory.mktemp("made")
        path, copy = str(folder / "t"), str(folder / "copy")
        made.write(path)
        wanted = load(path)
        dataset = from_delta(path)
        assert_same(arrow_of(dataset), wanted)
        if made.condition is not None:
            some = from_delta(path, filter=made.condition)
            assert_same(arrow_of(some), load(path, made.condition))
        to_delta(dataset, copy, partition_by=made.partitions or None)
        assert_same(load(copy), wanted)

    spark.conf.set("spark.sql.session.timeZone", "UTC")
    check()
