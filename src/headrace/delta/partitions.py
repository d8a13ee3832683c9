"""Partition values: the texts of the log as typed values, parsed as Spark's cast does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa

from headrace.delta.calendar import days_from_civil

_SPACE = "".join(chr(code) for code in range(33)) + "\x7f"
_DATE = re.compile(
    r"^([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?$", re.DOTALL | re.ASCII
)
# A zone may follow the seconds only.
_HOURS = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*(\D.*)?)?)?"
_TIME = re.compile(
    rf"^([+-]?\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_HOURS})?)?)?$", re.DOTALL | re.ASCII
)
_CLOCK = re.compile(rf"^(?:T|(?=\d{{1,2}}:)){_HOURS}$", re.DOTALL | re.ASCII)
_INTEGER = re.compile(r"^([+-]?)(\d*)(?:\.\d*)?$", re.ASCII)
_FLOAT = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)[df]?$", re.ASCII | re.IGNORECASE)
_OFFSET = re.compile(
    r"^(?:UTC|GMT|UT)?([+-])(?=\d{1,2}(?:$|:)|\d{4}$|\d{6}$)(\d{1,2})"
    r"(?::?(\d{2}|\d$)(?::?(\d{2}))?)?$",
    re.ASCII,
)
_LARGEST_OFFSET = 18 * 3600
_DAY_SECONDS = 86_400
# Names that Java keeps for zones beside those of the time zone database.
_SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_INTERVAL = re.compile(
    r"^(?:INTERVAL\s*)?([+-]?'?[+-]?)([0-9][0-9 :.]*)'?"
    r"(?:\s+((?:DAY|HOUR|MINUTE|SECOND)(?: TO (?:HOUR|MINUTE|SECOND))?))?$",
    re.IGNORECASE,
)
_UNITS = ("day", "hour", "minute", "second")
_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_BEYOND_SINGLE = 2.0**128  # where the next 32-bit float would be
_SPECIAL = frozenset(sign + word for sign in ("", "+", "-") for word in ("inf", "infinity")) | {
    "nan"
}
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def partition_scalar(text: str | None, kind: str, arrow: pa.DataType) -> pa.Scalar:
    """The value of a partition column of a file.

    Args:
        text: The log's text, or None for null.
        kind: The column's Delta type.
        arrow: Its Arrow type.

    Returns:
        The value; null where the text does not fit the type, as in Spark. Timestamps without
        an offset are UTC, and those without a day are today's.
    """
    is_clock = kind == "timestamp" and text is not None and _CLOCK.match(text.strip(_SPACE))
    return _scalar(text, kind, arrow) if is_clock else _known_scalar(text, kind, arrow)


def _scalar(text: str | None, kind: str, arrow: pa.DataType) -> pa.Scalar:
    if text is None or pa.types.is_null(arrow):
        return pa.scalar(None, arrow)
    value = _parser(kind)(text, arrow)
    if value is None:
        return pa.scalar(None, arrow)
    if pa.types.is_temporal(arrow):
        bits = arrow.bit_width
        fits = -(1 << (bits - 1)) <= value < (1 << (bits - 1))
        number = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
        return pa.scalar(value if fits else None, number).cast(arrow)
    return pa.scalar(value, arrow)


_known_scalar = lru_cache(maxsize=65_536)(_scalar)


def _parser(kind: str) -> Callable[[str, pa.DataType], Any]:
    if kind in _INTEGER_BITS:
        return lambda text, _: _parse_integer(text, _INTEGER_BITS[kind])
    if kind.startswith("decimal"):
        return _parse_decimal
    if kind.startswith("interval "):
        return lambda text, _: _parse_interval(text, kind)
    return {
        "string": lambda text, _: text,
        "binary": lambda text, _: text.encode("utf-8", "surrogatepass"),
        "boolean": lambda text, _: _parse_boolean(text),
        "float": lambda text, _: _parse_single(text),
        "double": lambda text, _: _parse_float(text),
        "date": lambda text, _: _parse_date(text),
        "timestamp": lambda text, _: parse_timestamp(text),
        "timestamp_ntz": lambda text, _: parse_timestamp(text, zoned=False),
    }.get(kind, lambda text, _: text)


def _parse_boolean(text: str) -> bool | None:
    word = text.strip(_SPACE).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _parse_integer(text: str, bits: int) -> int | None:
    word = text.strip(_SPACE)
    match = _INTEGER.match(word)
    if match is None or word == match[1]:
        return None
    value = int(match[1] + (match[2] or "0"))
    return value if -(1 << (bits - 1)) <= value < (1 << (bits - 1)) else None


def _parse_float(text: str) -> float | None:
    word = text.strip(_SPACE)
    lower = word.lower()
    if lower in _SPECIAL or word in ("+NaN", "-NaN"):
        return float(word)
    if lower.lstrip("+-").startswith("0x"):
        return _parse_hexadecimal(word.rstrip("dDfF")) if "p" in lower else None
    match = _FLOAT.match(word)
    return float(match[1]) if match else None


def _parse_hexadecimal(word: str) -> float | None:
    try:
        return float.fromhex(word)
    except ValueError:
        return None
    except OverflowError:
        return float("-inf" if word.startswith("-") else "inf")


def _parse_single(text: str) -> float | None:
    """The nearest 32-bit float, rounded once: by way of the nearest double it may be the next."""
    value = _parse_float(text)
    match = _FLOAT.match(text.strip(_SPACE))
    if value is None or match is None or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        nearest = float(np.float32(value))
        sides = [float(np.float32(math.nextafter(value, to))) for to in (-math.inf, math.inf)]
    middle = (
        sum(math.copysign(_BEYOND_SINGLE, side) if math.isinf(side) else side for side in sides) / 2
    )
    exact = Decimal(match[1])
    if middle != value or exact == value:
        return nearest
    return sides[exact > value]


def _parse_decimal(text: str, arrow: pa.DataType) -> Decimal | None:
    if "_" in text:  # which Python takes for part of a number
        return None
    try:
        with localcontext() as context:
            context.prec = 80
            value = Decimal(text.strip(_SPACE))
            if not value.is_finite():
                return None
            value = value.quantize(Decimal(1).scaleb(-arrow.scale), rounding=ROUND_HALF_UP)
            fits = abs(value) < Decimal(10) ** (arrow.precision - arrow.scale)
            return value if fits else None
    except InvalidOperation:
        return None


def _parse_interval(text: str, kind: str) -> int | None:
    """Microseconds of `INTERVAL '1 02:03:04.5' DAY TO SECOND`, as Spark writes its intervals."""
    literal = _INTERVAL.match(text.strip(_SPACE))
    units = (literal[3] if literal and literal[3] else kind.removeprefix("interval ")).lower()
    first, _, last = units.partition(" to ")
    start, end = _UNITS.index(first), _UNITS.index(last or first)
    numbers = re.split(r"[ :]", literal[2]) if literal else []
    if literal is None or len(numbers) != end - start + 1:
        return None
    sizes = [size * 1_000_000 for size in (86_400, 3_600, 60, 1)][start : end + 1]
    try:
        micros = sum(int(Decimal(n) * size) for n, size in zip(numbers, sizes, strict=True))
    except InvalidOperation:
        return None
    return -micros if literal[1].count("-") % 2 else micros


def _parse_date(text: str) -> int | None:
    match = _DATE.match(text.strip(_SPACE))
    return _days(match[1], match[2], match[3]) if match else None


def _days(year: str, month: str | None, day: str | None) -> int | None:
    y, m, d = int(year), int(month or 1), int(day or 1)
    try:
        date(2000 + y % 400, m, d)  # the calendar repeats every 400 years
    except ValueError:
        return None
    return days_from_civil(y, m, d)


def parse_timestamp(text: str, *, zoned: bool = True) -> int | None:
    """Microseconds since 1970 of a time as Spark writes or casts it, or None.

    Args:
        text: `2020-01-01 00:00:00[.123456][zone]`, or ISO 8601.
        zoned: Whether a zone counts; a `timestamp_ntz` drops it.
    """
    word = text.strip(_SPACE)
    match = _TIME.match(word)
    clock = _CLOCK.match(word) if zoned else None
    if clock is not None:
        return _parse_clock(*clock.groups())
    days = _days(match[1], match[2], match[3]) if match else None
    if match is None or days is None:
        return None
    return _micros(days, match.groups()[3:], zoned=zoned)


def _parse_clock(*parts: str | None) -> int | None:
    """A time of today, in the zone that it names."""
    today = datetime.now(UTC)
    offset = _offset_seconds((parts[4] or "Z").strip(), int(today.timestamp()))
    if offset is None:
        return None
    days = (int(today.timestamp()) + offset) // _DAY_SECONDS
    return _micros(days, parts, zoned=True)


def _micros(days: int, parts: Sequence[str | None], *, zoned: bool) -> int | None:
    """Micros of a day and of hour, minute, second, their fraction, and a zone."""
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004
        return None
    micros = int((parts[3] or "0").ljust(6, "0")[:6])
    local = ((days * 24 + hour) * 60 + minute) * 60 + second
    zone = (parts[4] or "").strip()
    offset = _offset_seconds(zone, local) if zone else 0
    if offset is None:
        return None
    return (local - offset * zoned) * 1_000_000 + micros


def _offset_seconds(zone: str, local: int) -> int | None:
    if zone in ("Z", "z", "UTC", "GMT", "UT"):
        return 0
    if match := _OFFSET.match(zone):
        hours, minutes, seconds = (int(match[part] or 0) for part in (2, 3, 4))
        size = hours * 3600 + minutes * 60 + seconds
        if size > _LARGEST_OFFSET or minutes > 59 or seconds > 59:  # noqa: PLR2004
            return None
        return size if match[1] == "+" else -size
    zone = _SHORT_ZONES.get(zone, zone)
    try:
        naive = datetime(1970, 1, 1) + timedelta(seconds=local)  # noqa: DTZ001 - local time
        found = naive.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OverflowError):
        return None
    return None if found is None else int(found.total_seconds())
