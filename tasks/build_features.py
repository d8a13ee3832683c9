"""Flights, weather, planes and airports to one table of what is known before a departure."""

from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, read_table, spark_task, write_table
from headrace.delta.spark import hash_split, repartition_sorted
from tasks.flight_features import add_features

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT = {"train": 0.7, "validation": 0.15, "test": 0.15}


@spark_task(profile="etl")
def build_features(
    tables: dict[str, TableRef], seed: int = 7, *, spark: "SparkSession", context: TaskContext
) -> TableRef:
    """Build the features of every flight that arrived, and say which split it belongs to.

    A feature may use only what is known when the hour of the scheduled departure begins: the
    schedule, the plane, the weather observed an hour before, and what has left the airport (or
    should have) by then.

    The days are split, not the flights: flights of one day share weather and queues, and a model
    that trained on some of them would be tested on a day whose delays it has already seen.

    Args:
        tables: References to `flights`, `weather`, `planes` and `airports`.
        seed: Another seed puts other days into the test.
        spark: The session.
        context: The task's context.

    Returns:
        The table `features`, partitioned by month.
    """
    names = ("flights", "weather", "planes", "airports")
    flights, weather, planes, airports = (read_table(tables[name], spark=spark) for name in names)
    rows = add_features(flights, weather, planes, airports)
    features = hash_split(rows, key=["flight_date"], seed=seed, fractions=SPLIT)
    # A fixed layout: the order that training reads does not depend on the cluster.
    laid_out = repartition_sorted(
        features, ["month"], partitions=4, sort=["departs_at", "flight_id"]
    )
    ref = write_table(
        laid_out, "features", mode="overwrite", partition_by=["month"], schema_mode="overwrite"
    )
    context.logger.info("features: %s flights", f"{ref.row_count:,}")
    return ref
