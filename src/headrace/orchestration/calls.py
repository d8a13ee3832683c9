"""What a pipeline's own thread knows of a call: its place, and whose results it hands over.

Prefect follows results too, but by the address of an object that may be gone: a reused address
then names the wrong task. Results are small here, so they are kept for as long as the run lasts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from headrace.orchestration.dependencies import Dependency, find_dependencies

_DEPTH = 4
_SMALL_INTS = range(-5, 257)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a task.

    Attributes:
        place: How many times the pipeline had called the task before.
        depends_on: Tasks (and items) whose results are among the arguments.
        waits: Futures and states among the arguments and in `wait_for`.
    """

    place: int = 0
    depends_on: frozenset[str] = frozenset()
    waits: tuple[Dependency, ...] = ()


_call: ContextVar[Call | None] = ContextVar("headrace_call", default=None)


def current_call() -> Call:
    """The call that this thread runs."""
    return _call.get() or Call()


class CallBook:
    """The calls of one run, and the results that they gave."""

    def __init__(self) -> None:
        self._places: Counter[str] = Counter()
        self._results: dict[int, tuple[object, str]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def calling(self, task: str, arguments: object) -> Iterator[None]:
        """Note a call for the block, and for the threads that Prefect starts in it."""
        with self._lock:
            place = self._places[task]
            self._places[task] += 1
        call = Call(
            place=place,
            depends_on=frozenset(self._origins(arguments, _DEPTH)),
            waits=find_dependencies(arguments),
        )
        token = _call.set(call)
        try:
            yield
        finally:
            _call.reset(token)

    def remember(self, node: str, result: object) -> None:
        """Note what a task gave, and what is inside it: `tables["flights"]` is its result too."""
        with self._lock:
            for part in _parts(result, _DEPTH):
                self._results[id(part)] = part, node

    def _origins(self, value: object, depth: int) -> set[str]:
        with self._lock:
            known = (self._results.get(id(part)) for part in _parts(value, depth))
            return {entry[1] for entry in known if entry is not None}


def _parts(value: object, depth: int) -> Iterator[object]:
    """The value and what it holds, without those that Python shares between all uses."""
    if value is None or isinstance(value, bool) or value in ("", ()):
        return
    if isinstance(value, int) and value in _SMALL_INTS:
        return
    yield value
    if depth == 0:
        return
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple | set):
        inner = value
    for item in inner:
        yield from _parts(item, depth - 1)
