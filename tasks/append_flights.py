"""Flights that came as CSV files, with their features, to the end of the table `arrivals`."""

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, read_table, spark_task, write_table
from headrace.exceptions import UserError, lines
from tasks.flight_csv import REJECTED, read_rows
from tasks.flight_features import add_features
from tasks.flight_schemas import CSV_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "arrivals"

_SHARED = ("weather", "planes", "airports")


@spark_task(profile="etl")
def append_flights(files: list[str], *, spark: "SparkSession", context: TaskContext) -> TableRef:
    """Append the flights of some files to the table `arrivals`, each flight once.

    Weather, planes and airports are those that `load_flights` loaded last. Rows that can't be used
    go to the table `rejected_rows`, as there. Flights that never arrived, or that are in the table
    already, are left out.

    Args:
        files: CSV files on this machine with the columns of `flights.csv`, in any order.
        spark: The session.
        context: The task's context.

    Returns:
        The table, with its change data feed on: `changes_since="last"` gives what is new.

    Raises:
        UserError: There is no file, or a file lacks a column.
    """
    if not files:
        raise UserError(
            message=lines(
                "There is no file of flights to append.",
                "The trigger of watch_flights hands the files over.",
                'files=["incoming/flights/2013-12-31.csv"]',
            )
        )
    table = CSV_TABLES["flights"]
    rows = reduce(
        lambda left, right: left.unionByName(right),
        [read_rows(spark, Path(file), table) for file in files],
    ).persist()
    rejected = rows.where("reason IS NOT NULL").select(*REJECTED)
    if not rejected.isEmpty():
        write_table(rejected.coalesce(1), "rejected_rows", mode="append")
    # The same flight may stand in two files.
    flights = rows.where("reason IS NULL").select(*table.columns).dropDuplicates(list(table.key))
    arrivals = add_features(flights, *(read_table(name, spark=spark) for name in _SHARED))
    if _exists(context):
        known = read_table(TABLE, spark=spark).select("flight_id")
        arrivals = arrivals.join(known, "flight_id", "left_anti")
    # For a new table; one that is there keeps what it has.
    spark.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
    ref = write_table(arrivals.coalesce(1), TABLE, mode="append")
    context.logger.info("%s: %s flights by now", TABLE, f"{ref.row_count:,}")
    return ref


def _exists(context: TaskContext) -> bool:
    from headrace.delta.snapshot import load_snapshot
    from headrace.exceptions import TableNotFoundError

    try:
        load_snapshot(context.table_uri(TABLE), storage=context.storage)
    except TableNotFoundError:
        return False
    return True
