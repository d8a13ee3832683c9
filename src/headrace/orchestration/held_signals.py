"""While a run ends, a signal is noted instead of raised, so that its end is recorded whole.

A TERM or Ctrl-C often comes more than once: to a whole process group, and again from a parent that
passes it on. The first one raises in the pipeline's function, as Prefect or Python has it. One that
raised while the end is recorded would leave tasks without a state.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

JOINT_S = 2.0
"""Signals that come so soon after the first are the same wish, passed on by several."""

_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)


class HeldSignals:
    """A context in which, once `begin` was called, INT, TERM and ALRM raise nothing.

    A first one that came after `begin` is delivered when the context ends. In a thread that is not
    the main one nothing happens: no signal is raised there.
    """

    def __init__(self) -> None:
        self._again: Callable[[str], None] | None = None
        self._previous: dict[signal.Signals, Any] = {}
        # `put` may be called by a signal handler at any moment, also in the middle of a `put`.
        self._noted: SimpleQueue[tuple[int, float] | None] = SimpleQueue()
        self._first: float | None = None
        self._owed: int | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def begin(self, again: Callable[[str], None] | None = None) -> None:
        """Hold signals from now on; it may be called again.

        Args:
            again: Called from another thread, with the reason in words, for a second wish: a signal
                that comes later than `JOINT_S` after the first.
        """
        self._again = again or self._again
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _HELD:
            handler = signal.getsignal(number)
            if handler != self._note and _would_raise(number, handler):
                # Python handles what has come so far first, which may raise: then it isn't set.
                self._previous.setdefault(number, handler)
                signal.signal(number, self._note)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, daemon=True, name="headrace-signals"
            )
            self._thread.start()

    def count_first(self) -> None:
        """The wish to end has been raised already, so that the next one is the second."""
        self._first = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            _restore(self._previous)
        finally:
            if self._thread is not None:
                self._noted.put(None)
                self._thread.join()
        if self._owed is not None:
            os.kill(os.getpid(), self._owed)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._noted.put((number, time.monotonic()))

    def _watch(self) -> None:
        """In a thread, as what `again` locks may be locked where the signal came."""
        while (noted := self._noted.get()) is not None:
            number, at = noted
            if number == signal.SIGALRM:
                continue  # the time limit of a pipeline that ends already
            if self._first is None:
                self._first, self._owed = at, number
            elif self._again and at - self._first >= JOINT_S:
                self._again(f"interrupted again: {signal.Signals(number).name}")


def work_uninterrupted(
    work: Callable[[], T], *, stop: Callable[[], object], again: Callable[[str], None]
) -> T:
    """Do something where no signal can raise, and wait for it here.

    An attempt that a pipeline waits for in its main thread would be torn by a second TERM while the
    first one ends its processes. So it has a thread of its own; an interrupt of the wait stops it,
    and is raised once it has ended.

    Args:
        work: What to do. In a thread that is not the main one it is done right there.
        stop: Called when the wait for it is interrupted.
        again: Called at a second interrupt; see `HeldSignals.begin`.

    Returns:
        What `work` returns; what it raises is raised.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: Future[T] = Future()
    context = copy_context()
    thread = threading.Thread(
        target=context.run, args=(_settle, result, work), name="headrace-task", daemon=True
    )
    with HeldSignals() as held:
        try:
            try:
                with putting_off_signals():
                    thread.start()
                wait([result])
            finally:
                held.begin(again)
        except BaseException:
            held.begin(again)
            held.count_first()
            stop()
            wait([result])
            raise
    return result.result()


def _settle(result: Future[T], work: Callable[[], T]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
        result.set_exception(error)


@contextmanager
def putting_off_signals() -> Iterator[None]:
    """Deliver TERM or INT that come inside the block right after it: what it does is done whole."""
    came: list[int] = []
    previous: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                if _would_raise(number, handler):
                    previous[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        _restore(previous)
        if came:
            os.kill(os.getpid(), came[0])


def _restore(previous: dict[signal.Signals, Any]) -> None:
    """Set handlers back, all of them, although one may be called and raise at once."""
    try:
        while previous:
            number = next(iter(previous))
            signal.signal(number, previous[number])
            del previous[number]
    except BaseException:
        _restore(previous)
        raise


def _would_raise(number: signal.Signals, handler: Any) -> bool:
    """Whether a signal does anything that a run's end has to be spared."""
    if number == signal.SIGALRM:
        # Prefect's limit of a pipeline; an alarm that somebody else has set is left to them.
        owner = getattr(handler, "__self__", None)
        return type(owner).__module__.startswith("prefect.")
    return handler not in (None, signal.SIG_IGN)


@contextmanager
def sparing_clean_up(
    again: Callable[[str], None], interrupted: BaseException | None
) -> Iterator[None]:
    """Let a clean-up task that a pipeline calls in its `finally:` run after an interrupt.

    Args:
        again: Called at the next interrupt.
        interrupted: What is being handled, as `sys.exception` tells; only an interrupt counts.
    """
    if interrupted is None or isinstance(interrupted, Exception):
        yield
        return
    with HeldSignals() as held:
        held.begin(again)
        held.count_first()
        yield
