"""The roots of the error tree, and what builds an error's text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class HeadraceError(Exception):
    """Root of the tree.

    A subclass names its values as keyword arguments and builds its text in `describe`.

    Args:
        values: What the text is made of; each becomes an attribute.
    """

    def __init__(self, **values: Any) -> None:
        self.values = values
        for name, value in values.items():
            setattr(self, name, value)
        super().__init__(self.describe())

    def describe(self) -> str:
        """The whole text, built from the attributes."""
        return str(self.values.get("message", type(self).__name__))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.values)


def _rebuild(kind: type[HeadraceError], values: dict[str, Any]) -> HeadraceError:
    return kind(**values)


def lines(what: str, found: str = "", fix: str = "") -> str:
    """Join the three lines of an error text, leaving out the empty ones."""
    return "\n".join(part for part in (what, found, f"Fix: {fix}" if fix else "") if part)


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The known name that looks most like `word`, or None when nothing is near (0 takes any)."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


class UserError(HeadraceError):
    """Wrong input. It is never retried."""


class EngineError(HeadraceError):
    """Infrastructure failed. A retry may help."""


class DataError(HeadraceError):
    """A table, a version or a schema is not what was asked for."""


def full_name(kind: type) -> str:
    """`module.Class`, as in `TaskFailedError.error_type`.

    Example:
        >>> full_name(ValueError)
        'builtins.ValueError'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def error_bases(kind: type) -> tuple[str, ...]:
    """Full names of a class and of all that it derives from, the nearest first."""
    return tuple(full_name(base) for base in kind.__mro__ if base is not object)
