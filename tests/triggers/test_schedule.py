"""A simulated clock through a year of schedules, against other readings of the same rules."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from prefect._vendor.croniter import croniter

from headrace.triggers.decide import due_times, upcoming
from headrace.triggers.declare import cron, interval
from headrace.triggers.schedule import count_ticks, last_tick, next_tick, ticks

ZONES = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Asia/Kolkata",
]
RULES = [
    "0 6 * * *",
    "30 2 * * *",
    "15,45 1,2,3 * * *",
    "*/15 * * * *",
    "7 * * * *",
    "0 */6 * * *",
    "0 0 1 * *",
    "0 12 13 * FRI",
    "5 4 * * 1-5",
    "0 9 L * *",
    "0 0 29 2 *",
    "30 0 * JAN,JUL SUN",
    "0 8 * * MON#1",
]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
END = datetime(2025, 1, 1, tzinfo=UTC)


def by_every_minute(expression: str, tz: str) -> list[datetime]:
    """The slowest reading there is: each minute of the year is asked whether the wall shows it.

    Fixed times that no minute shows are put at the first minute after the gap.
    """
    rule = CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC))
    minutes_field, hours_field = expression.split()[:2]
    fixed = not minutes_field.startswith("*") and not hours_field.startswith("*")
    zone, moment = ZoneInfo(tz), BEGIN - timedelta(days=1)
    found: list[datetime] = []
    shown: set[datetime] = set()
    before = (moment - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None)
    fits_day = {}
    while moment <= END:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        walls = [wall]
        if fixed and wall - before > timedelta(minutes=1):  # the clocks went forward
            gap = int((wall - before) / timedelta(minutes=1))
            walls += [before + timedelta(minutes=n) for n in range(1, gap)]
        for each in walls:
            day = each.date()
            if day not in fits_day:
                fits_day[day] = day.month in rule.months and rule.match_day(day)
            fits = fits_day[day] and each.hour in rule.hours and each.minute in rule.minutes
            if fits and not (fixed and each in shown):
                shown.add(each)
                if not found or found[-1] != moment:
                    found.append(moment)
        before, moment = wall, moment + timedelta(minutes=1)
    return [tick for tick in found if BEGIN < tick <= END]


# Where clocks go by half an hour, cronsim's iterator passes over times: Lord Howe is left out.
@pytest.mark.parametrize("tz", ["UTC", "Europe/Paris", "America/New_York", "America/Santiago"])
@pytest.mark.parametrize("expression", RULES)
def test_a_year_of_times_is_that_of_cronsims_own_iterator(expression, tz):
    ours = list(ticks(cron(expression, tz=tz), BEGIN, END))
    start = (BEGIN - timedelta(days=2)).astimezone(ZoneInfo(tz))
    judged = (tick.astimezone(UTC) for tick in CronSim(expression, start))
    judged = sorted({tick for tick in takewhile(lambda tick: tick <= END, judged) if tick > BEGIN})
    assert ours == judged


@pytest.mark.parametrize("tz", ["Europe/Paris", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "15,45 1,2,3 * * *", "*/15 * * * *", "7 * * * *"]
)
def test_a_year_of_times_is_what_the_wall_shows_minute_by_minute(expression, tz):
    assert list(ticks(cron(expression, tz=tz), BEGIN, END)) == by_every_minute(expression, tz)


@pytest.mark.parametrize("expression", [rule for rule in RULES if "#" not in rule])
@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_without_daylight_saving_croniter_reads_the_same(expression, tz):
    judge = croniter(expression, BEGIN.astimezone(ZoneInfo(tz)).replace(tzinfo=None))
    judged = []
    while True:
        tick = judge.get_next(datetime).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)
        if tick > END:
            break
        judged.append(tick)
    assert list(ticks(cron(expression, tz=tz), BEGIN, END)) == judged


@pytest.mark.parametrize("tz", ZONES)
@pytest.mark.parametrize("expression", RULES)
def test_the_last_time_before_any_moment_is_the_last_of_those_before_it(expression, tz):
    schedule, random_ = cron(expression, tz=tz), random.Random(expression + tz)
    every = list(ticks(schedule, BEGIN, END))
    for _ in range(40):
        until = BEGIN + timedelta(seconds=random_.uniform(0, 366 * 86400))
        after = until - timedelta(
            seconds=random_.choice([60, 3600, 86400, 40 * 86400, 366 * 86400])
        )
        fitting = [tick for tick in every if max(after, BEGIN) < tick <= until]
        if after >= BEGIN:
            assert last_tick(schedule, until, after=after) == (fitting[-1] if fitting else None)
            assert count_ticks(schedule, after, until, most=50) == min(50, len(fitting))


def test_an_interval_is_real_time_across_a_change_of_the_clocks():
    paris = ZoneInfo("Europe/Paris")
    hourly = interval(hours=6, anchor=datetime(2024, 1, 1, 0, tzinfo=paris))
    found = list(ticks(hourly, BEGIN, END))
    assert all(late - early == timedelta(hours=6) for early, late in pairwise(found))
    assert last_tick(hourly, END, after=BEGIN) == found[-1]
    assert next_tick(hourly, BEGIN) == found[0]


@pytest.mark.parametrize("catch_up", ["all", "last", "none"])
@pytest.mark.parametrize("expression", ["*/15 * * * *", "30 2 * * *", "0 6 1 * *"])
def test_a_simulated_clock_gives_each_time_one_run(expression, catch_up):
    """The clock goes on in steps of seconds to days, and is set back an hour now and then."""
    schedule, seed = cron(expression, tz="America/New_York"), random.Random(expression)
    now = cursor = BEGIN
    furthest, fired, windows = BEGIN, [], []
    while now < END:
        step = seed.choice([1, 5, 50, 600, 7000, 90_000])
        now += timedelta(seconds=step)
        if seed.random() < 0.01:
            now = max(BEGIN, now - timedelta(hours=1))
        due = due_times(schedule, cursor=cursor, now=now, catch_up=catch_up)
        while due.fire and catch_up == "all" and due.cursor < now:
            fired += due.fire
            cursor = due.cursor
            due = due_times(schedule, cursor=cursor, now=now, catch_up=catch_up)
        fired += due.fire
        windows.append((cursor, now))
        cursor, furthest = due.cursor, max(furthest, now)
    every = set(ticks(schedule, BEGIN, furthest))
    # The ledger knows each time by its key: what a clock that went back repeats is one run.
    assert set(fired) <= every
    if catch_up == "all":
        assert set(fired) == every
    if catch_up == "last":
        newest = {last_tick(schedule, now, after=start) for start, now in windows if start < now}
        assert set(fired) == newest - {None}


def test_what_passed_while_nobody_served_is_counted():
    hourly = cron("0 * * * *")
    away = due_times(hourly, cursor=BEGIN, now=BEGIN + timedelta(hours=5.5), catch_up="last")
    assert away.fire == (BEGIN + timedelta(hours=5),)
    assert (away.missed.count, away.missed.first) == (4, BEGIN + timedelta(hours=1))
    assert away.missed.last == BEGIN + timedelta(hours=4)
    none = due_times(hourly, cursor=BEGIN, now=BEGIN + timedelta(hours=5.5), catch_up="none")
    assert (none.fire, none.missed.count, none.missed.last) == ((), 5, BEGIN + timedelta(hours=5))
    punctual = due_times(
        hourly, cursor=BEGIN, now=BEGIN + timedelta(hours=1, seconds=3), catch_up="none"
    )
    assert (punctual.fire, punctual.missed) == ((BEGIN + timedelta(hours=1),), None)


def test_a_clock_that_was_set_back_takes_the_cursor_along():
    back = due_times(
        cron("0 * * * *"), cursor=BEGIN + timedelta(days=1), now=BEGIN, catch_up="last"
    )
    assert (back.fire, back.cursor) == ((), BEGIN)


def test_the_next_ten_times():
    found = upcoming(cron("0 6 * * MON", tz="Europe/Paris"), BEGIN, 10)
    assert len(found) == 10
    assert all(tick.astimezone(ZoneInfo("Europe/Paris")).hour == 6 for tick in found)
