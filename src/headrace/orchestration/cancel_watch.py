"""Notices within a second or two that somebody asked the ledger to cancel a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.exceptions import HeadraceError
from headrace.ledger.store import Ledger
from headrace.orchestration.session import RunSession

log = logging.getLogger("headrace.run")

POLL_S = 1.0
GRACE_S = 2.0


@contextmanager
def watch_cancel(
    ledger: Ledger, run_id: str, stop: Callable[[str], None], kill: Callable[[str], None]
) -> Iterator[None]:
    """Look for a cancel while the block runs.

    Args:
        ledger: The ledger.
        run_id: The run that this process drives.
        stop: Called at the first request, from a thread, with the reason.
        kill: Called at the second one.
    """
    over = threading.Event()

    def work() -> None:
        first = None
        while not over.wait(POLL_S):
            try:
                asked = ledger.cancel_asked_at(run_id)
                if asked is not None and first is None:
                    first = asked
                    stop("cancelled on request")
                elif asked != first:
                    kill("cancelled twice")
                    return
            except HeadraceError as error:
                # The ledger is away for a moment; leases decide whether that is too long.
                log.debug("no answer about a cancel: %s", error)

    thread = threading.Thread(target=work, name="headrace-cancel-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=POLL_S * 2)


@contextmanager
def limit_time(session: RunSession, limit_s: float | None) -> Iterator[None]:
    """Stop a run that takes longer than its pipeline's `timeout_seconds`.

    Prefect raises an error in the pipeline's function at that moment. This is for a function that
    does not get to see it, in a thread or in a call that no signal interrupts.
    """
    if not limit_s:
        yield
        return
    reason = f"timed out after {limit_s:g} s"
    timer = threading.Timer(limit_s + GRACE_S, session.stop, [reason, "timed_out"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
