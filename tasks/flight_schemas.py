"""Columns, types and keys of the CSV files, as Spark SQL types."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CsvTable:
    """What one CSV file has to hold.

    Attributes:
        columns: Spark SQL type of each column, in the table's order.
        key: Columns that together tell any two rows apart.
    """

    columns: dict[str, str]
    key: tuple[str, ...]


def _typed(**names: str) -> dict[str, str]:
    """Columns by type: `_typed(int="year month", string="origin")`, kept in the order given."""
    return {name: kind for kind, text in names.items() for name in text.split()}


CSV_TABLES = {
    "flights": CsvTable(
        columns=_typed(
            int="year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time "
            "arr_delay flight air_time distance hour minute",
            string="carrier tailnum origin dest",
            timestamp="time_hour",
        ),
        key=("year", "month", "day", "carrier", "flight", "origin"),
    ),
    "weather": CsvTable(
        columns=_typed(
            string="origin",
            timestamp="time_hour",
            int="year month day hour",
            double="temp dewp humid wind_dir wind_speed wind_gust precip pressure visib",
        ),
        key=("origin", "time_hour"),
    ),
    "planes": CsvTable(
        columns=_typed(
            string="tailnum type manufacturer model engine",
            int="year engines seats speed",
        ),
        key=("tailnum",),
    ),
    "airports": CsvTable(
        columns=_typed(string="faa name dst tzone", double="lat lon", int="alt tz"),
        key=("faa",),
    ),
    "airlines": CsvTable(columns=_typed(string="carrier name"), key=("carrier",)),
}
