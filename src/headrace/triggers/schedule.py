"""The times of a schedule, both ways from any moment.

Daylight saving as Debian's cron has it: a fixed time that a change of the clocks skips comes as
soon as the gap is over, and one that a change repeats comes once, the first time. An expression
whose minute or hour starts with `*` means a distance, and follows the time that really passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from headrace.exceptions import TriggerDefinitionError
from headrace.triggers.model import Interval, Schedule

_FIELDS = 5
# February 29 on a given weekday comes back within 40 years.
_LONGEST_SEARCH = timedelta(days=366 * 50)
_DAY = timedelta(days=1)


def check_expression(expression: str, shown: str) -> None:
    """Refuse what is no cron expression, and what cron programs read in different ways.

    Raises:
        TriggerDefinitionError: The text says which.
    """
    fields = expression.split() if isinstance(expression, str) else []
    if len(fields) != _FIELDS:
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"the expression has {len(fields)} fields instead of 5",
            found="minute, hour, day of month, month, day of week",
            fix='cron("0 6 * * *"), or interval(seconds=30) for less than a minute',
        )
    try:
        parsed = CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC))
        next(iter(parsed))
    except CronSimError as error:
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"the expression is wrong: {str(error).lower()}",
            found="minute 0-59, hour 0-23, day of month 1-31, month 1-12, day of week 0-7",
            fix='cron("0 6 * * *")',
        ) from error
    except StopIteration as error:
        raise TriggerDefinitionError(
            trigger=shown,
            problem="no day ever fits the expression",
            found="Day of month and month contradict each other.",
            fix='cron("0 6 28 2 *")',
        ) from error
    day, weekday = fields[2], fields[4]
    stepped = [text for text in (day, weekday) if text.startswith("*") and text != "*"]
    if stepped and "*" not in (day, weekday):
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"{stepped[0]} together with the other day field is read in two ways",
            found="Some cron programs take days that fit both fields, others days that fit one.",
            fix="write the days out (1,3,5,...), or give one of the two fields as *",
        )


def ticks(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """The times after one moment up to another, that one included, oldest first, in UTC."""
    if isinstance(schedule, Interval):
        yield from _interval_ticks(schedule, after, until)
        return
    zone = ZoneInfo(schedule.tz)
    # A time in a gap moves to the gap's end, which may be on the next day.
    day = after.astimezone(zone).date() - _DAY
    last = until.astimezone(zone).date()
    seen = after
    while day <= last:
        for moment in _day_ticks(schedule.expression, schedule.tz, day):
            if seen < moment <= until:
                seen = moment
                yield moment
        day += _DAY


def next_tick(schedule: Schedule, after: datetime) -> datetime | None:
    """The first time after a moment."""
    return next(ticks(schedule, after, after + _LONGEST_SEARCH), None)


def last_tick(schedule: Schedule, until: datetime, *, after: datetime) -> datetime | None:
    """The last time in (after, until], or None."""
    if isinstance(schedule, Interval):
        steps = (until - schedule.anchor) // timedelta(seconds=schedule.every_s)
        moment = schedule.anchor + steps * timedelta(seconds=schedule.every_s)
        return moment if moment > after else None
    zone = ZoneInfo(schedule.tz)
    day = until.astimezone(zone).date()
    first = after.astimezone(zone).date() - _DAY
    best: datetime | None = None
    while day >= first:
        fitting = [
            moment
            for moment in _day_ticks(schedule.expression, schedule.tz, day)
            if after < moment <= until
        ]
        best = max([*fitting, *([best] if best else [])], default=None)
        # One more day: what a gap moved may lie later than what the day itself has.
        if best is not None and day < best.astimezone(zone).date():
            return best
        day -= _DAY
    return best


def count_ticks(schedule: Schedule, after: datetime, until: datetime, *, most: int = 1000) -> int:
    """How many times lie in (after, until], counted up to `most`."""
    if isinstance(schedule, Interval):
        step = timedelta(seconds=schedule.every_s)
        count = (until - schedule.anchor) // step - (after - schedule.anchor) // step
        return max(0, min(most, count))
    return sum(1 for _, _ in zip(range(most), ticks(schedule, after, until), strict=False))


def _interval_ticks(schedule: Interval, after: datetime, until: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=schedule.every_s)
    moment = schedule.anchor + ((after - schedule.anchor) // step + 1) * step
    while moment <= until:
        yield moment
        moment += step


@lru_cache(maxsize=256)
def _day_ticks(expression: str, tz: str, day: date) -> tuple[datetime, ...]:
    """The times that one local day stands for, in UTC, in order, each once."""
    rule = _parse(expression)
    if day.month not in rule.months or not rule.match_day(day):
        return ()
    zone = ZoneInfo(tz)
    fields = expression.split()
    fixed = not (fields[0].startswith("*") or fields[1].startswith("*"))
    found: set[datetime] = set()
    for hour in sorted(rule.hours):
        for minute in sorted(rule.minutes):
            found.update(_moments(datetime.combine(day, time(hour, minute)), zone, fixed=fixed))
    return tuple(sorted(found))


def _moments(local: datetime, zone: ZoneInfo, *, fixed: bool) -> Iterator[datetime]:
    """What a time on the wall means: one moment; two when it repeats; none when it is skipped."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(zone).replace(tzinfo=None) != local:
        if fixed:
            yield _end_of_gap(second, first, zone)
        return
    yield first
    if second != first and not fixed:
        yield second


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first minute after the change of the clocks that lies between two moments."""
    offset = before.astimezone(zone).utcoffset()
    low, high = before, after
    while high - low > timedelta(minutes=1):
        middle = low + (high - low) / 2
        middle = middle.replace(second=0, microsecond=0)
        if middle in (low, high):
            break
        if middle.astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=64)
def _parse(expression: str) -> CronSim:
    return CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC))
