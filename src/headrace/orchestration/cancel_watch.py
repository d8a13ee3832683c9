"""Notices within a second or two that somebody asked the ledger to cancel a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.exceptions import HeadraceError
from headrace.ledger.store import Ledger

log = logging.getLogger("headrace.run")

POLL_S = 1.0


@contextmanager
def watch_cancel(ledger: Ledger, run_id: str, stop: Callable[[str], None]) -> Iterator[None]:
    """Look for a cancel while the block runs.

    Args:
        ledger: The ledger.
        run_id: The run that this process drives.
        stop: Called once, from a thread, with the reason.
    """
    over = threading.Event()

    def work() -> None:
        while not over.wait(POLL_S):
            try:
                if ledger.cancel_requested(run_id):
                    stop("cancelled on request")
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
