"""Numbers with a unit: `"1536MiB"` and `"30m"`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\s*")

# Spark's and Java's "2g" mean binary units, "GB" means decimal ones; both are rounded down to MiB.
_BYTES: Final = {
    "b": 1,
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), 1)},
    **{unit: 1024**power for power, unit in enumerate(("k", "m", "g", "t"), 1)},
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), 1)},
}
_SECONDS: Final = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
MEMORY_UNITS: Final = "KiB, MiB, GiB, TiB (also k, m, g, t; KB, MB, GB, TB are powers of 1000)"
DURATION_UNITS: Final = "ms, s, m, h, d"


def parse_memory(text: object) -> int:
    """Read an amount of memory, in whole MiB.

    Args:
        text: For example `"1536MiB"`, `"2GiB"`, `"2g"`, `"1.5 GiB"`.

    Raises:
        ValueError: No text, no unit, an unknown unit, or less than 1 MiB.

    Example:
        >>> parse_memory("1.5GiB")
        1536
    """
    number, unit = _split(text, example="MiB", units=MEMORY_UNITS)
    factor = _BYTES.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} has the unknown unit {unit!r}|Units: {MEMORY_UNITS}.|")
    mib = int(number * factor / 1024**2)
    if mib < 1:
        raise ValueError(f'{text!r} is less than 1 MiB||write at least "1MiB"')
    return mib


def parse_duration(text: object) -> float:
    """Read a length of time, in seconds.

    Args:
        text: For example `"90s"`, `"30m"`, `"1.5h"`.

    Raises:
        ValueError: No text, no unit, an unknown unit, or no time at all.

    Example:
        >>> parse_duration("30m")
        1800.0
    """
    number, unit = _split(text, example="s", units=DURATION_UNITS)
    factor = _SECONDS.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} has the unknown unit {unit!r}|Units: {DURATION_UNITS}.|")
    if number == 0:
        raise ValueError(f'{text!r} is no time at all||leave the key out for "no limit"')
    return float(number * factor)


def format_memory(mib: int) -> str:
    """Write MiB as a profile file would: `"1536MiB"`, `"2GiB"`."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def format_duration(seconds: float) -> str:
    """Write seconds as a profile file would: `"30m"`, `"90s"`."""
    for unit, factor in (("h", 3600), ("m", 60)):
        if seconds >= factor and seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _split(text: object, *, example: str, units: str) -> tuple[Fraction, str]:
    """Cut a text into number and unit.

    A message has the three parts of an error text, divided by `|`: problem, what is allowed, fix.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f'{text} has no unit|Units: {units}.|write "{text}{example}"')  # noqa: TRY004 - pydantic and callers know one error
    if not isinstance(text, str):
        raise ValueError(  # noqa: TRY004
            f'{text!r} is no number with a unit|Units: {units}.|write for example "2{example}"'
        )
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(
            f'{text!r} is no number with a unit|Units: {units}.|write for example "2{example}"'
        )
    if not match["unit"]:
        number = match["number"]
        raise ValueError(f'{text!r} has no unit|Units: {units}.|write "{number}{example}"')
    return Fraction(match["number"]), match["unit"]
