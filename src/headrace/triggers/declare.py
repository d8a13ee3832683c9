"""The triggers as they are written beside a flow, checked when they are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from headrace.exceptions import TriggerDefinitionError, closest
from headrace.triggers.model import (
    EPOCH,
    Continuous,
    Cron,
    FileArrival,
    Interval,
    On,
    PipelineEnd,
    TableUpdate,
)
from headrace.triggers.schedule import check_expression

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> Cron:
    """Run at the times of a cron expression.

    A fixed time that daylight saving skips runs as soon as the gap is over, and one that comes
    twice runs the first time; expressions whose minute or hour starts with `*` follow the time
    that really passes.

    Args:
        expression: Five fields: minute, hour, day of month, month, day of week.
        tz: An IANA time zone.
        parameters: Parameters of its runs; `{{ trigger.time }}` is the time that they stand for.
        name: Its name; made of the rule by default.

    Raises:
        TriggerDefinitionError: The expression or the zone is none.

    Example:
        >>> cron("0 6 * * *", tz="Europe/Paris").rule
        '0 6 * * * Europe/Paris'
    """
    shown = f"cron({expression!r}, tz={tz!r})"
    check_expression(expression, shown)
    _check_zone(tz, shown)
    return Cron(expression=" ".join(expression.split()), tz=tz, **_shared("cron", parameters, name))


def interval(
    seconds: float = 0,
    *,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    anchor: datetime | None = None,
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> Interval:
    """Run every so many seconds, minutes, hours or days, counted from an anchor.

    The distance is real time: a day has 24 hours, also when the clocks change.

    Args:
        seconds: Added up with `minutes`, `hours` and `days`; whole seconds.
        minutes: See there.
        hours: See there.
        days: See there.
        anchor: A moment with a zone at which it runs; midnight UTC of 1970-01-01 by default.
        parameters: Parameters of its runs.
        name: Its name; made of the rule by default.

    Raises:
        TriggerDefinitionError: The sum is below one second, or the anchor has no zone.
    """
    every = seconds + 60 * minutes + 3600 * hours + 86400 * days
    if not math.isfinite(every) or every < 1 or every != int(every):
        raise TriggerDefinitionError(
            trigger=f"interval({every:g} s)",
            problem="the distance is not a whole number of seconds above 0",
            found="seconds, minutes, hours and days are added up.",
            fix="interval(minutes=15)",
        )
    if anchor is not None and anchor.tzinfo is None:
        raise TriggerDefinitionError(
            trigger=f"interval({every:g} s)",
            problem="the anchor has no time zone",
            found=f"anchor={anchor.isoformat()}",
            fix='anchor=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))',
        )
    start = EPOCH if anchor is None else anchor.astimezone(UTC)
    return Interval(every_s=int(every), anchor=start, **_shared("interval", parameters, name))


def on_table(
    *tables: str,
    when: Literal["any", "all"] = "any",
    quiet_s: float = 0,
    min_gap_s: float = 0,
    existing: bool = True,
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> TableUpdate:
    """Run when Delta tables have new data.

    A commit counts that adds, changes or removes rows. Optimising, vacuuming and new properties
    don't count.

    Args:
        tables: Names in the lake, paths or `s3://` addresses.
        when: `any` table changed, or `all` of them did since the last run.
        quiet_s: Wait until no table has changed for so long.
        min_gap_s: At least so long between two runs of this trigger.
        existing: Whether what is there at the first look counts as new.
        parameters: Parameters of its runs; see `{{ trigger.version }}`, `{{ trigger.versions }}`.
        name: Its name; made of the tables by default.

    Raises:
        TriggerDefinitionError: No table, an empty name, or a negative number.

    Example:
        >>> on_table("flights", quiet_s=60, parameters={"version": "{{ trigger.version }}"}).name
        ''
    """
    shown = f"on_table({', '.join(map(repr, tables))})"
    if not tables or not all(isinstance(table, str) and table.strip() for table in tables):
        raise TriggerDefinitionError(
            trigger=shown,
            problem="a table name is missing",
            found="Each is a name in the lake, a path or an address.",
            fix='on_table("flights")',
        )
    _check_choice(shown, "when", when, ("any", "all"))
    _check_seconds(shown, quiet_s=quiet_s, min_gap_s=min_gap_s)
    return TableUpdate(
        tables=tuple(dict.fromkeys(table.strip() for table in tables)),
        when=when,
        quiet_s=float(quiet_s),
        min_gap_s=float(min_gap_s),
        existing=existing,
        **_shared("on_table", parameters, name),
    )


def on_files(
    pattern: str,
    *,
    quiet_s: float = 0,
    min_gap_s: float = 0,
    settle_s: float = 5,
    max_files: int = 1000,
    existing: bool = True,
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> FileArrival:
    """Run when files arrive, each file once.

    A file that was overwritten, or renamed to another name that fits, counts as a new one.

    Args:
        pattern: A path (from the project's root) or an `s3://` address with `*`, `?`, `[...]`, or
            `**` for any depth.
        quiet_s: Wait until no file has come for so long.
        min_gap_s: At least so long between two runs of this trigger.
        settle_s: A file counts once its size and time have stood still for so long.
        max_files: Files of one run at most; the others wait for the next run.
        existing: Whether files that are there at the first look count as new.
        parameters: Parameters of its runs; `"{{ trigger.files }}"` is the list of paths.
        name: Its name; made of the pattern by default.

    Raises:
        TriggerDefinitionError: The pattern has no wildcard, or a number is out of range.
    """
    shown = f"on_files({pattern!r})"
    if not isinstance(pattern, str) or not re.search(r"[*?\[]", pattern):
        raise TriggerDefinitionError(
            trigger=shown,
            problem="the pattern has no *, ? or [...]",
            found="A pattern names the files that count: *.csv, 2013-??.parquet, **/*.json.",
            fix=f'on_files("{str(pattern).rstrip("/")}/*.csv")',
        )
    if pattern.startswith("s3://") and re.match(r"s3://[^/]*[*?\[]", pattern):
        raise TriggerDefinitionError(
            trigger=shown,
            problem="the bucket's name has a wildcard",
            found="A bucket is named, its keys may be a pattern.",
            fix='on_files("s3://bucket/in/*.csv")',
        )
    _check_seconds(shown, quiet_s=quiet_s, min_gap_s=min_gap_s, settle_s=settle_s)
    if isinstance(max_files, bool) or not isinstance(max_files, int) or max_files < 1:
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"max_files={max_files!r} is no number above 0",
            found="So many files go to one run at most.",
            fix="max_files=1000",
        )
    return FileArrival(
        pattern=pattern,
        quiet_s=float(quiet_s),
        min_gap_s=float(min_gap_s),
        settle_s=float(settle_s),
        max_files=max_files,
        existing=existing,
        **_shared("on_files", parameters, name),
    )


def continuous(
    *,
    pause_s: float = 0,
    backoff_s: float = 10,
    backoff_max_s: float = 600,
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> Continuous:
    """Run again and again, one run at a time.

    After a failure the next run waits: `backoff_s`, then twice that, up to `backoff_max_s`. A
    success starts from the beginning.

    Args:
        pause_s: Between a good run and the next one.
        backoff_s: After the first failure.
        backoff_max_s: The longest wait.
        parameters: Parameters of its runs.
        name: Its name; `continuous` by default.

    Raises:
        TriggerDefinitionError: A number is negative.
    """
    _check_seconds(
        "continuous()", pause_s=pause_s, backoff_s=backoff_s, backoff_max_s=backoff_max_s
    )
    return Continuous(
        pause_s=float(pause_s),
        backoff_s=float(backoff_s),
        backoff_max_s=float(backoff_max_s),
        **_shared("continuous", parameters, name),
    )


def on_pipeline(
    pipeline: str,
    *,
    on: On = "success",
    parameters: Mapping[str, Any] | None = None,
    name: str = "",
) -> PipelineEnd:
    """Run when a run of another pipeline has ended.

    Args:
        pipeline: Name of the other pipeline.
        on: `success`, `failure` (every other end but a cancel), or `end` for any.
        parameters: Parameters of its runs; `{{ trigger.run_id }}` is the run that ended.
        name: Its name; made of the other pipeline's by default.

    Raises:
        TriggerDefinitionError: The name is empty, or `on` is another word.
    """
    shown = f"on_pipeline({pipeline!r})"
    if not isinstance(pipeline, str) or not pipeline.strip():
        raise TriggerDefinitionError(
            trigger=shown,
            problem="the pipeline's name is missing",
            found="It is the name of the other @pipeline.",
            fix='on_pipeline("build_features")',
        )
    _check_choice(shown, "on", on, get_args(On))
    return PipelineEnd(pipeline=pipeline.strip(), on=on, **_shared(shown, parameters, name))


def _shared(shown: str, parameters: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if name and not _NAME.fullmatch(name):
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"name={name!r} can't be a trigger's name",
            found="A name has lower case letters, digits and single dashes.",
            fix='name="' + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "nightly") + '"',
        )
    return {"parameters": dict(parameters or {}), "name": name}


def _check_zone(tz: str, shown: str) -> None:
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        near = closest(str(tz), available_timezones()) or "Europe/Paris"
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"there is no time zone {tz!r}",
            found="Zones are those of the IANA database.",
            fix=f'tz="{near}"',
        ) from error


def _check_seconds(shown: str, **values: float) -> None:
    for key, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= timedelta(days=366).total_seconds():
            raise TriggerDefinitionError(
                trigger=shown,
                problem=f"{key}={value!r} is no number of seconds from 0 to a year",
                found="Times are given in seconds.",
                fix=f"{key}=60",
            )


def _check_choice(shown: str, key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise TriggerDefinitionError(
            trigger=shown,
            problem=f"{key}={value!r} is not known",
            found=f"It is one of {', '.join(allowed)}.",
            fix=f'{key}="{closest(str(value), allowed, cutoff=0) or allowed[0]}"',
        )
