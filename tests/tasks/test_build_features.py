from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace import read_arrow, read_table, write_table
from headrace.context import use_context
from tasks.build_features import build_features
from tasks.feature_matrix import FEATURES, TARGET

pytestmark = pytest.mark.spark

# 11 o'clock in New York on a day of the sample, with flights before and after it.
NOW = datetime(2013, 7, 5, 15, tzinfo=UTC)


@pytest.fixture
def build(spark, task_context, tmp_path):
    """Builds features from changed tables, in a lake of their own; the rows by flight."""
    context = replace(task_context, lake=str(tmp_path / "lake"), reads=[], writes=[])

    def run(tables, *, seed=7, **changed):
        with use_context(context):
            refs = {name: write_table(frame, name) for name, frame in changed.items()}
            ref = build_features({**tables, **refs}, seed=seed, spark=spark, context=context)
            return by_flight(ref)

    return run


def by_flight(ref):
    return {row["flight_id"]: row for row in read_arrow(ref).to_pylist()}


def test_features_hold_one_row_per_flight_that_arrived(spark, loaded, features):
    arrived = read_table(loaded["flights"], spark=spark).where("arr_delay IS NOT NULL").count()
    assert features.row_count == arrived == len(by_flight(features))


def test_features_are_partitioned_by_month(features):
    from deltalake import DeltaTable

    assert DeltaTable(features.uri).metadata().partition_columns == ["month"]


def test_only_the_key_the_split_the_target_and_the_features_are_kept(spark, features):
    columns = set(read_table(features, spark=spark).columns)
    assert columns == {
        "flight_id", "flight_date", "departs_at", "month", "split", TARGET, *FEATURES,
    }  # fmt: skip


def test_nothing_that_happens_later_changes_a_feature(spark, loaded, features, build):
    from pyspark.sql import functions as fn

    now = fn.lit(NOW)
    flights = read_table(loaded["flights"], spark=spark)
    departed = fn.timestamp_seconds(
        fn.unix_seconds("time_hour") + (fn.col("minute") + fn.col("dep_delay")) * 60
    )
    later = departed >= now
    # Everything that an airport learns only after now is made up.
    other_flights = flights.withColumns(
        {
            "dep_delay": fn.when(later, fn.col("dep_delay") + 300).otherwise(fn.col("dep_delay")),
            "dep_time": fn.when(later, 1).otherwise(fn.col("dep_time")),
            "arr_time": fn.lit(1),
            "air_time": fn.lit(1),
            "arr_delay": fn.col("arr_delay") + 1000,
        }
    )
    weather = read_table(loaded["weather"], spark=spark)
    other_weather = weather.withColumns(
        {
            name: fn.when(fn.col("time_hour") >= now, -1.0).otherwise(fn.col(name))
            for name in ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "visib")
        }
    )
    before, after = by_flight(features), build(loaded, flights=other_flights, weather=other_weather)
    known = {"flight_id", "split", *FEATURES}
    assert after.keys() == before.keys()
    seen = [key for key, row in before.items() if row["departs_at"] < NOW.replace(hour=16)]
    assert {before[key]["departs_at"].replace(minute=0) for key in seen} >= {NOW}
    for key in seen:
        assert {name: after[key][name] for name in known} == {
            name: before[key][name] for name in known
        }, key
    # The made-up values do reach the flights that come after them.
    assert any(after[key]["temperature_f"] == -1 for key in after)
    assert any(after[key]["recent_delay_minutes"] != row["recent_delay_minutes"]
               for key, row in before.items())  # fmt: skip


def test_weather_is_that_of_the_hour_before(spark, loaded, features):
    observed = {
        row["time_hour"].timestamp() // 3600: row["temp"]
        for row in read_arrow(loaded["weather"]).to_pylist()
    }
    rows = by_flight(features).values()
    hours = [row["departs_at"].timestamp() // 3600 - 1 for row in rows]
    assert [row["temperature_f"] for row in rows] == [
        pytest.approx(observed[hour]) if hour in observed else None for hour in hours
    ]


def test_a_flight_that_leaves_early_is_not_in_its_own_history(spark, loaded, build):
    flights = read_table(loaded["flights"], spark=spark)
    one = flights.where("dep_delay < -5 AND minute < 5 AND arr_delay IS NOT NULL").limit(1)
    (row,) = build(loaded, flights=one).values()
    assert row["recent_departures"] == row["overdue_flights"] == 0
    assert row["recent_delay_minutes"] is None


def test_late_and_cancelled_flights_are_overdue_for_three_hours(spark, loaded, build):
    from pyspark.sql import functions as fn

    one = read_table(loaded["flights"], spark=spark).where("arr_delay IS NOT NULL").limit(1).cache()

    def flight(number, hours, dep_delay):
        return one.withColumns(
            {
                "flight": fn.lit(number),
                "minute": fn.lit(0),
                "time_hour": fn.lit(NOW) + fn.expr(f"INTERVAL {hours} HOURS"),
                "dep_delay": fn.lit(dep_delay).cast("int"),
                "arr_delay": fn.lit(0 if dep_delay is not None else None).cast("int"),
            }
        )

    flights = flight(1, 0, None).union(flight(2, 0, 70))
    for hours in range(1, 5):
        flights = flights.union(flight(10 + hours, hours, 0))
    rows = {key.split("-")[4]: row for key, row in build(loaded, flights=flights).items()}
    waiting = {number: rows[str(number)]["overdue_flights"] for number in range(11, 15)}
    assert waiting == {11: 2, 12: 1, 13: 1, 14: 0}
    assert rows["12"]["recent_delay_minutes"] == 35  # flight 2 with 70 minutes, flight 11 with 0


def test_a_wind_that_cannot_be_is_left_out(spark, loaded, build):
    from pyspark.sql import functions as fn

    weather = read_table(loaded["weather"], spark=spark)
    stormy = weather.withColumn("wind_speed", fn.lit(1048.4))
    assert {row["wind_speed_mph"] for row in build(loaded, weather=stormy).values()} == {None}


def test_the_split_depends_on_day_and_seed_alone(spark, loaded, features, build):
    splits = {key: row["split"] for key, row in by_flight(features).items()}
    flights = read_table(loaded["flights"], spark=spark).orderBy("air_time").repartition(7)
    again = {key: row["split"] for key, row in build(loaded, flights=flights).items()}
    other = {key: row["split"] for key, row in build(loaded, seed=8).items()}
    assert again == splits
    assert other != splits
    assert set(splits.values()) == {"train", "validation", "test"}
    days = {(key[:10], split) for key, split in splits.items()}
    assert len(days) == len({day for day, _ in days})
