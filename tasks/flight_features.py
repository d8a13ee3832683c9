"""What is known of a flight before it departs: schedule, plane, weather, state of the airport."""

from typing import TYPE_CHECKING

from tasks.airport_history import count_overdue, count_scheduled, mean_recent_delay
from tasks.feature_matrix import CATEGORIES, NUMBERS, TARGET

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Faster than any wind ever measured at the ground, so it is a typing error.
_FASTEST_WIND_MPH = 250


def add_features(
    flights: "DataFrame", weather: "DataFrame", planes: "DataFrame", airports: "DataFrame"
) -> "DataFrame":
    """The key, the target and the features of every flight that arrived, one row each.

    A feature uses only what is known when the hour of the scheduled departure begins: the
    schedule, the plane, the weather observed an hour before, and what has left the airport (or
    should have) by then.
    """
    rows = _add_airport_history(_with_hours(flights))
    rows = _add_weather(rows, weather)
    rows = _add_plane(rows, planes)
    return _select(_add_places(rows, airports))


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
