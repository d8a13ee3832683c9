"""Flights, weather, planes and airports to one table of what is known before a departure."""

from typing import TYPE_CHECKING

from headrace import TableRef, TaskContext, read_table, spark_task, write_table
from headrace.delta.spark import hash_split, repartition_sorted
from tasks.airport_history import count_overdue, count_scheduled, mean_recent_delay
from tasks.feature_matrix import CATEGORIES, NUMBERS, TARGET

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SPLIT = {"train": 0.7, "validation": 0.15, "test": 0.15}

# Faster than any wind ever measured at the ground, so it is a typing error.
_FASTEST_WIND_MPH = 250


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
    rows = _add_airport_history(_with_hours(flights))
    rows = _add_weather(rows, weather)
    rows = _add_plane(rows, planes)
    rows = _add_places(rows, airports)
    features = hash_split(_select(rows), key=["flight_date"], seed=seed, fractions=SPLIT)
    # A fixed layout: the order that training reads does not depend on the cluster.
    laid_out = repartition_sorted(
        features, ["month"], partitions=4, sort=["departs_at", "flight_id"]
    )
    ref = write_table(
        laid_out, "features", mode="overwrite", partition_by=["month"], schema_mode="overwrite"
    )
    context.logger.info("features: %s flights", f"{ref.row_count:,}")
    return ref


def _with_hours(flights: "DataFrame") -> "DataFrame":
    """Add the hour of the scheduled and of the real departure, as hours since 1970."""
    from pyspark.sql import functions as fn

    scheduled = fn.unix_seconds("time_hour") + fn.col("minute") * 60
    departed = scheduled + fn.col("dep_delay") * 60
    return flights.withColumns(
        {
            "flight_date": fn.make_date("year", "month", "day"),
            "departs_at": fn.timestamp_seconds(scheduled),
            "hour_number": fn.floor(fn.unix_seconds("time_hour") / 3600),
            "departed_hour": fn.floor(departed / 3600),
        }
    )


def _add_airport_history(flights: "DataFrame") -> "DataFrame":
    """Join what is known of the airport, and of the carrier at it, when the hour begins."""
    from pyspark.sql import functions as fn

    by_carrier = ["origin", "carrier"]
    history = [
        count_scheduled(flights),
        mean_recent_delay(flights, by=["origin"]),
        count_overdue(flights, by=["origin"]),
        mean_recent_delay(flights, by=by_carrier)
        .drop("recent_departures")
        .withColumnRenamed("recent_delay_minutes", "carrier_delay_minutes"),
        count_overdue(flights, by=by_carrier).withColumnRenamed(
            "overdue_flights", "carrier_overdue_flights"
        ),
    ]
    rows = flights
    for part in history:
        keys = [name for name in (*by_carrier, "hour_number") if name in part.columns]
        rows = rows.join(fn.broadcast(part), keys, "left")
    counts = ["recent_departures", "overdue_flights", "carrier_overdue_flights"]
    return rows.fillna(0, subset=counts)


def _add_weather(rows: "DataFrame", weather: "DataFrame") -> "DataFrame":
    """Join the observation of the hour before.

    The file's observation of an hour is taken near its end, so the one of the departure's own hour
    may come after the departure.
    """
    from pyspark.sql import functions as fn

    speed = fn.col("wind_speed")
    observed = weather.select(
        "origin",
        (fn.floor(fn.unix_seconds("time_hour") / 3600) + 1).alias("hour_number"),
        fn.col("temp").alias("temperature_f"),
        fn.col("dewp").alias("dew_point_f"),
        fn.col("humid").alias("humidity_pct"),
        fn.col("wind_dir").alias("wind_direction_deg"),
        fn.when(speed <= _FASTEST_WIND_MPH, speed).alias("wind_speed_mph"),
        fn.col("wind_gust").alias("wind_gust_mph"),
        fn.col("precip").alias("precipitation_in"),
        fn.col("pressure").alias("pressure_mb"),
        fn.col("visib").alias("visibility_miles"),
    )
    return rows.join(fn.broadcast(observed), ["origin", "hour_number"], "left")


def _add_plane(rows: "DataFrame", planes: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as fn

    known = planes.select(
        "tailnum", fn.col("seats").alias("plane_seats"), fn.col("year").alias("built")
    )
    return rows.join(fn.broadcast(known), "tailnum", "left").withColumn(
        "plane_age_years", fn.col("year") - fn.col("built")
    )


def _add_places(rows: "DataFrame", airports: "DataFrame") -> "DataFrame":
    """Add where the flight goes, and its planned minutes from gate to gate."""
    from pyspark.sql import functions as fn

    start = airports.select(fn.col("faa").alias("origin"), fn.col("tz").alias("origin_tz"))
    end = airports.select(
        fn.col("faa").alias("dest"),
        fn.col("tz").alias("dest_tz"),
        fn.col("lat").alias("dest_latitude"),
        fn.col("lon").alias("dest_longitude"),
    )
    minutes = (
        _minute_of_day("sched_arr_time")
        - _minute_of_day("sched_dep_time")
        # Both times are local: flying west, the clock is turned back.
        - (fn.col("dest_tz") - fn.col("origin_tz")) * 60
    )
    return (
        rows.join(fn.broadcast(start), "origin", "left")
        .join(fn.broadcast(end), "dest", "left")
        .withColumn("scheduled_minutes", fn.pmod(minutes, fn.lit(24 * 60)))
    )


def _minute_of_day(clock: str) -> "Column":
    """Minutes since midnight of a time that is written as HHMM."""
    from pyspark.sql import functions as fn

    return fn.floor(fn.col(clock) / 100) * 60 + fn.col(clock) % 100


def _select(rows: "DataFrame") -> "DataFrame":
    """Keep flights that arrived, their key, the target and the features."""
    from pyspark.sql import functions as fn

    derived = {
        "flight_id": fn.concat_ws("-", "flight_date", "carrier", "flight", "origin"),
        "departure_minute": _minute_of_day("sched_dep_time"),
        "day_of_week": fn.weekday("flight_date"),
        "distance_miles": fn.col("distance"),
    }
    return (
        # A cancelled or diverted flight has no arrival delay to learn from.
        rows.where(fn.col(TARGET).isNotNull())
        .withColumns(derived)
        .select(
            "flight_id",
            "flight_date",
            "departs_at",
            "month",
            *CATEGORIES,
            *(fn.col(name).cast("float").alias(name) for name in (TARGET, *NUMBERS)),
        )
    )
