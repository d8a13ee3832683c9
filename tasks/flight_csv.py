"""Rows of the flights' CSV files, typed, each with the reason for which it can't be used."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.bridge.staging import stage_file
from headrace.exceptions import UserError, closest, lines
from tasks.flight_schemas import CsvTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REJECTED = ["source_file", "reason", "detail", "row_text"]
"""Columns of the table `rejected_rows`."""


def read_header(path: Path, table: CsvTable) -> list[str]:
    """The file's columns in its own order; they may stand in any order, more are ignored.

    Raises:
        UserError: A column is missing.
    """
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


def read_rows(
    spark: "SparkSession", path: Path, table: CsvTable, header: list[str] | None = None
) -> "DataFrame":
    """All rows of one file: the table's columns with their types, and those of `REJECTED`.

    `reason` is null for a row that can be used, else `broken row` (too few or too many fields),
    `wrong type`, `missing key` or `duplicate key`.

    Args:
        spark: The session.
        path: A CSV file with a header.
        table: Which columns it has to have.
        header: What `read_header` gave, when it was read before.

    Raises:
        UserError: A column is missing.
    """
    return _check_rows(_parse_rows(spark, path, header or read_header(path, table), table), table)


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
