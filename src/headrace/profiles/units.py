"""Numbers with a unit: `"1536MiB"` and `"30m"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

_NUMBER = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)\s*")

# Spark's and Java's "2g" mean binary units, "GB" means decimal ones; both are rounded down to MiB.
_BYTES: Final = {
    "b": Fraction(1),
    **{unit: Fraction(1024**power) for power, unit in enumerate(("kib", "mib", "gib", "tib"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("k", "m", "g", "t"), 1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate(("kb", "mb", "gb", "tb"), 1)},
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


class UnitError(ValueError):
    """A text that isn't a number with a known unit.

    Attributes:
        problem: What is wrong.
        found: What is allowed, or an empty text.
        value: What to write instead, as TOML, or an empty text.
    """

    def __init__(self, problem: str, *, found: str = "", value: str = "") -> None:
        super().__init__(problem, found, value)
        self.problem, self.found, self.value = problem, found, value


def parse_memory(text: object) -> int:
    """Read an amount of memory, in whole MiB.

    Args:
        text: For example `"1536MiB"`, `"2GiB"`, `"2g"`, `"1.5 GiB"`.

    Raises:
        UnitError: No text, no unit, an unknown unit, or less than 1 MiB.

    Example:
        >>> parse_memory("1.5GiB")
        1536
    """
    mib = int(_parse(text, _BYTES, usual="MiB", units=MEMORY_UNITS) / 1024**2)
    if mib < 1:
        raise UnitError(f"{text!r} is less than 1 MiB", value='"1MiB"')
    return mib


def parse_duration(text: object) -> float:
    """Read a length of time, in seconds.

    Args:
        text: For example `"90s"`, `"30m"`, `"1.5h"`.

    Raises:
        UnitError: No text, no unit, an unknown unit, or no time at all.

    Example:
        >>> parse_duration("30m")
        1800.0
    """
    seconds = _parse(text, _SECONDS, usual="s", units=DURATION_UNITS)
    if seconds == 0:
        raise UnitError(f"{text!r} is no time at all", value='"30m"')
    return float(seconds)


def format_memory(mib: int) -> str:
    """Write MiB as a profile file would: `"1536MiB"`, `"2GiB"`."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def format_duration(seconds: float) -> str:
    """Write seconds as a profile file would: `"30m"`, `"90s"`."""
    for unit, factor in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= factor and seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    return f"{seconds:.3f}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def _parse(text: object, factors: Mapping[str, Fraction], *, usual: str, units: str) -> Fraction:
    """The number times its unit's factor; `usual` is the unit that a bare number gets as advice."""
    found = f"Units: {units}."
    is_number = isinstance(text, int | float) and not isinstance(text, bool)
    match = _NUMBER.fullmatch(text if isinstance(text, str) else str(text) if is_number else "")
    if match is None:
        raise UnitError(f"{text!r} is no number with a unit", found=found, value=f'"2{usual}"')
    number, unit = match["number"], match["unit"]
    if not unit:
        raise UnitError(f"{text!r} has no unit", found=found, value=f'"{number}{usual}"')
    factor = factors.get(unit.lower())
    if factor is None:
        problem = f"{text!r} has the unknown unit {unit!r}"
        raise UnitError(problem, found=found, value=f'"{number}{usual}"')
    return Fraction(number) * factor
