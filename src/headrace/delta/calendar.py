"""Days and micros in the Gregorian calendar, and files that count in the older one.

Spark 2 and Spark's LEGACY mode write dates and times in the hybrid Julian calendar that
`java.util` has; such a file says so in its metadata, and a reader has to shift what lies before
15 October 1582 (days) or before the zone's modern rules (times). The rule follows Spark's
`RebaseDateTime`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64 = npt.NDArray[np.int64]

_DAY = 86_400_000_000
# First day of the Gregorian calendar, 1582-10-15; the day before it is 1582-10-04.
_GREGORIAN_START = -141_427
# 1900-01-01 in micros: from here on both calendars have the same zone rules.
_COMMON_MICROS = -2_208_988_800_000_000

_VERSION = b"org.apache.spark.version"
_ZONE = b"org.apache.spark.timeZone"
_LEGACY = {"datetime": b"org.apache.spark.legacyDateTime", "int96": b"org.apache.spark.legacyINT96"}
_FIRST_CORRECT = {"datetime": (3, 0, 0), "int96": (3, 1, 0)}


@dataclass(frozen=True)
class Rebase:
    """What a file's metadata asks for.

    Attributes:
        dates: Whether dates and INT64 times are in the old calendar.
        int96: Whether INT96 times are.
        zone: The writer's time zone.
    """

    dates: bool = False
    int96: bool = False
    zone: str = "UTC"


def rebase_of(metadata: Mapping[bytes, bytes] | None) -> Rebase:
    """Read a file's key-value metadata; a file that Spark did not write is modern."""
    found = metadata or {}
    if _VERSION not in found:
        return Rebase()
    numbers = re.findall(rb"\d+", found[_VERSION])[:3]
    version = tuple(int(part) for part in numbers)

    def is_legacy(kind: str) -> bool:
        return version < _FIRST_CORRECT[kind] or _LEGACY[kind] in found

    zone = found.get(_ZONE, b"UTC").decode()
    return Rebase(dates=is_legacy("datetime"), int96=is_legacy("int96"), zone=zone)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970 of a Gregorian date, for any year."""
    y = year - (month <= 2)  # noqa: PLR2004 - the year starts in March here
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1  # noqa: PLR2004
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def rebase_days(days: Int64) -> Int64:
    """Days in the hybrid calendar as the days of the same date in the Gregorian one."""
    old = days < _GREGORIAN_START
    if not old.any():
        return days
    year, month, day = _julian_date(days[old])
    result = days.copy()
    result[old] = _gregorian_days(year, month, day)
    return result


def rebase_micros(micros: Int64, zone: str) -> Int64:
    """Times in the hybrid calendar as the same local times in the Gregorian one."""
    old = micros < _COMMON_MICROS
    if not old.any():
        return micros
    local = micros[old] + _legacy_offset(zone)
    days = np.floor_divide(local, _DAY)
    within = local - days * _DAY
    result = micros.copy()
    result[old] = _to_utc(rebase_days(days) * _DAY + within, zone)
    return result


def _julian_date(days: Int64) -> tuple[Int64, Int64, Int64]:
    """Year, month, day in the Julian calendar (Richards' algorithm)."""
    f = days + 2_440_588 + 1401
    e = 4 * f + 3
    h = 5 * (np.floor_divide(np.mod(e, 1461), 4)) + 2
    day = np.floor_divide(np.mod(h, 153), 5) + 1
    month = np.mod(np.floor_divide(h, 153) + 2, 12) + 1
    year = np.floor_divide(e, 1461) - 4716 + np.floor_divide(14 - month, 12)
    return year, month, day


def _gregorian_days(year: Int64, month: Int64, day: Int64) -> Int64:
    y = year - (month <= 2)  # noqa: PLR2004
    era = np.floor_divide(y, 400)
    of_era = y - era * 400
    shifted = month + np.where(month > 2, -3, 9)  # noqa: PLR2004
    of_year = np.floor_divide(153 * shifted + 2, 5) + day - 1
    # 29 February of 1500 and its like don't exist in the Gregorian calendar; Spark takes 1 March.
    whole = of_era * 365 + np.floor_divide(of_era, 4) - np.floor_divide(of_era, 100) + of_year
    days: Int64 = era * 146_097 + whole - 719_468
    return days


def _legacy_offset(zone: str) -> int:
    """The offset in micros that `java.util` takes before 1900: today's standard time."""
    winter = datetime(2020, 1, 1, tzinfo=UTC).astimezone(_zone(zone))
    standard = (winter.utcoffset() or timedelta()) - (winter.dst() or timedelta())
    return standard // timedelta(microseconds=1)


def _to_utc(local: Int64, zone: str) -> Int64:
    """Local times as UTC by the zone's real rules, local mean time included, as `java.time`."""
    rules = _zone(zone)
    if not isinstance(rules, ZoneInfo):
        return local - (rules.utcoffset(None) or timedelta()) // timedelta(microseconds=1)
    naive = pa.array(local).cast(pa.timestamp("us"))
    zoned = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="latest")
    result: Int64 = zoned.cast(pa.int64()).to_numpy()
    return result


def _zone(name: str) -> tzinfo:
    if match := re.match(r"^(?:GMT|UTC|UT)?([+-])(\d{1,2}):?(\d{2})?$", name):
        size = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(size if match[1] == "+" else -size)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC
