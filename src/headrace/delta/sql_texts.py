"""Functions on texts, with Spark's meaning: characters are code points, a space is only a space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.sql import SqlError

# An Arrow array, chunked array or scalar.
Value = Any


def check_text(*values: Value) -> None:
    """Refuse what is no text: Spark would cast it."""
    for value in values:
        if not pa.types.is_string(value.type):
            raise SqlError(f"a text was expected, not {value.type}")


def of_text(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """A function of one text."""

    def apply(value: Value) -> Value:
        check_text(value)
        return function(value)

    return apply


def of_ascii(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """A function of one text; upper and lower case differ between Java and Arrow outside ASCII."""

    def apply(value: Value) -> Value:
        plain = pc.string_is_ascii(value)
        found = plain.as_py() if isinstance(plain, pa.Scalar) else pc.all(plain).as_py()
        if found is False:
            raise SqlError("upper and lower case of other letters than ASCII are not supported")
        return function(value)

    return of_text(apply)


def constant(value: Value, wanted: str) -> Any:
    """The Python value of a constant argument that isn't null."""
    if not isinstance(value, pa.Scalar) or not value.is_valid:
        raise SqlError(f"{wanted} has to be a constant")
    return value.as_py()


def like(value: Value, pattern: Value) -> Value:
    """Whether a text fits a LIKE pattern."""
    if not isinstance(pattern, pa.Scalar) or not pa.types.is_string(value.type):
        raise SqlError("LIKE needs a text column and a constant pattern")
    return pc.match_like(value, pattern.as_py())


def concat(*values: Value) -> Value:
    """Texts one after the other; null when one of them is."""
    check_text(*values)
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def substring(value: Value, start: Value, length: Value | None = None) -> Value:
    """Characters from a place on, the first being 1 (and 0)."""
    check_text(value)
    first = _whole(start, "the place of a substring")
    if first < 0:
        raise SqlError("a substring from the end is not supported")
    begin = max(first - 1, 0)
    if length is None:
        return pc.utf8_slice_codeunits(value, begin)
    count = max(_whole(length, "the length of a substring"), 0)
    return pc.utf8_slice_codeunits(value, begin, begin + count)


def left(value: Value, length: Value) -> Value:
    """The first characters."""
    return substring(value, pa.scalar(1), length)


def right(value: Value, length: Value) -> Value:
    """The last characters."""
    check_text(value)
    count = _whole(length, "the length of a substring")
    # From its own length on a text has no characters.
    return pc.utf8_slice_codeunits(value, -count) if count > 0 else left(value, pa.scalar(0))


def part_test(function: Callable[..., Value]) -> Callable[[Value, Value], Value]:
    """A test whether a text has a constant part."""

    def apply(value: Value, part: Value) -> Value:
        check_text(value, part)
        return function(value, pattern=constant(part, "the part that is looked for"))

    return apply


def _whole(value: Value, wanted: str) -> int:
    number = constant(value, wanted)
    if not isinstance(number, int) or isinstance(number, bool):
        raise SqlError(f"{wanted} has to be a whole number")
    return number


_length = of_text(pc.utf8_length)
FUNCTIONS: dict[str, Callable[..., Value]] = {
    "like": like,
    "||": concat,
    "concat": concat,
    "substring": substring,
    "substr": substring,
    "left": left,
    "right": right,
    "startswith": part_test(pc.starts_with),
    "endswith": part_test(pc.ends_with),
    "contains": part_test(pc.match_substring),
    "length": _length,
    "len": _length,
    "char_length": _length,
    "character_length": _length,
    "upper": of_ascii(pc.ascii_upper),
    "ucase": of_ascii(pc.ascii_upper),
    "lower": of_ascii(pc.ascii_lower),
    "lcase": of_ascii(pc.ascii_lower),
    "trim": of_text(lambda value: pc.utf8_trim(value, characters=" ")),
    "ltrim": of_text(lambda value: pc.utf8_ltrim(value, characters=" ")),
    "rtrim": of_text(lambda value: pc.utf8_rtrim(value, characters=" ")),
}
