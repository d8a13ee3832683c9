"""The outcome of one check of `headrace doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "fault"]


class Check(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: What was checked.
        state: `ok`, `warning` (it works, but ...) or `fault`.
        found: What was found.
        fix: What to do about it; empty when all is well.
    """

    name: str
    state: State
    found: str
    fix: str = ""
