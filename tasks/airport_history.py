"""What an airport knows about itself when an hour begins: planned, departed and overdue flights.

Hours are whole numbers of hours since 1970. `hour_number` is the hour of the scheduled departure,
`departed_hour` that of the real one (null for a cancelled flight).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOOK_BACK_HOURS = 3


def count_scheduled(flights: "DataFrame") -> "DataFrame":
    """How many departures an airport has planned for an hour."""
    from pyspark.sql import functions as fn

    planned = flights.groupBy("origin", "hour_number")
    return planned.agg(fn.count("*").alias("flights_this_hour"))


def mean_recent_delay(flights: "DataFrame", *, by: Sequence[str]) -> "DataFrame":
    """How many flights left in the hour before, and how late they were on average.

    A flight that leaves early, in the hour before its own, is left out: it would be counted among
    those that went before it.

    Args:
        flights: All flights, with their hours.
        by: Columns to group by beside the hour.

    Returns:
        Columns `by`, `hour_number`, `recent_departures`, `recent_delay_minutes`.
    """
    from pyspark.sql import functions as fn

    next_hour = (fn.col("departed_hour") + 1).alias("hour_number")
    return (
        flights.where("departed_hour >= hour_number")
        .groupBy(*by, next_hour)
        .agg(
            fn.count("*").alias("recent_departures"),
            fn.avg("dep_delay").alias("recent_delay_minutes"),
        )
    )


def count_overdue(flights: "DataFrame", *, by: Sequence[str]) -> "DataFrame":
    """How many flights of the last three hours are still at the gate when an hour begins.

    A cancelled flight counts too: nobody can tell yet that it will not leave.

    Args:
        flights: All flights, with their hours.
        by: Columns to group by beside the hour.

    Returns:
        Columns `by`, `hour_number`, `overdue_flights`.
    """
    from pyspark.sql import functions as fn

    late_hours = fn.coalesce(fn.expr("departed_hour - hour_number"), fn.lit(_LOOK_BACK_HOURS))
    waiting = fn.least(late_hours, fn.lit(_LOOK_BACK_HOURS))
    return (
        flights.withColumn("waiting", waiting)
        .where("waiting >= 1")
        .select(*by, "hour_number", fn.explode(fn.expr("sequence(1, waiting)")).alias("lag"))
        .groupBy(*by, (fn.col("hour_number") + fn.col("lag")).alias("hour_number"))
        .agg(fn.count("*").alias("overdue_flights"))
    )
