"""Every error that headrace raises, in one tree.

HeadraceError
├── UserError                 wrong input; never retried
│   ├── FlowNotFoundError, TaskNotFoundError
│   ├── ProfileError          ├── ProfileNotFoundError, EnvironmentNotFoundError
│   ├── ParameterError, TaskDefinitionError, ResultError
│   └── (feature modules add theirs below these)
├── EngineError               infrastructure; a retry may help
│   ├── JavaNotFoundError, JarsUnavailableError, PortInUseError, ServerStartError
│   └── TaskCrashedError      ├── MemoryLimitError, TaskTimeoutError, TaskCancelledError
└── DataError                 table, version or schema
    └── TableNotFoundError, SnapshotExpiredError, ...

Each text has three lines: what happened with its names; what was found or is allowed; something to paste.
Values are attributes, and an error pickles between processes with them.
"""

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


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `word`, or None when nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return near[0] if near else None


class UserError(HeadraceError):
    """Wrong input. It is never retried."""


class EngineError(HeadraceError):
    """Infrastructure failed. A retry may help."""


class DataError(HeadraceError):
    """A table, a version or a schema is not what was asked for."""
