"""Keep a lease alive from a thread, and tell its holder when it is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from headrace.exceptions import LeaseLostError, LedgerUnavailableError
from headrace.ledger.records import BEAT_S, LEASE_S

logger = logging.getLogger(__name__)


class Renew(Protocol):
    """`Ledger.renew_lease` and `Ledger.renew_driver`."""

    def __call__(
        self, holder_id: int, token: str, lease_s: float, /, *, patience_s: float | None = None
    ) -> None:
        """Renew once, or raise `LeaseLostError`."""


@contextmanager
def keep_lease(
    renew: Renew,
    holder_id: int,
    token: str,
    *,
    on_lost: Callable[[], None],
    lease_s: float = LEASE_S,
    beat_s: float = BEAT_S,
) -> Iterator[threading.Event]:
    """Renew a lease every few seconds while the block runs.

    A ledger that is locked or gone is no loss as long as the lease lasts: the renewal is tried
    until then. After that somebody else may have acted on it, so the holder has to stop.

    Args:
        renew: `ledger.renew_lease` for an attempt, `ledger.renew_driver` for a run.
        holder_id: Id of the attempt or of the repair.
        token: Its fence token.
        on_lost: Called once, from the thread, when the lease is lost: stop the work.
        lease_s: Length of the lease.
        beat_s: Time between two renewals.

    Returns:
        An event that is set once the lease is lost.
    """
    done, lost = threading.Event(), threading.Event()

    def beat() -> None:
        if not _beat_until(done, renew, holder_id, token, lease_s=lease_s, beat_s=beat_s):
            lost.set()
            on_lost()

    thread = threading.Thread(target=beat, name=f"lease-{holder_id}", daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        done.set()
        # A renewal that hangs in a lost database must not hold up the result.
        thread.join(timeout=beat_s)


def _beat_until(
    done: threading.Event,
    renew: Renew,
    holder_id: int,
    token: str,
    *,
    lease_s: float,
    beat_s: float,
) -> bool:
    """Renew until `done`; False when the lease is lost before."""
    # Read before the renewal is sent: the holder's own count must never be the longer one.
    renewed_at = time.monotonic()
    while not done.wait(beat_s):
        sent_at = time.monotonic()
        left_s = lease_s - (sent_at - renewed_at)
        try:
            renew(holder_id, token, lease_s, patience_s=max(left_s, 0.0))
        except LeaseLostError:
            logger.warning("A lease was lost: holder %s.", holder_id)
            return False
        except LedgerUnavailableError as error:
            if time.monotonic() - renewed_at >= lease_s:
                logger.warning("The ledger is gone for longer than a lease: %s", error)
                return False
        except Exception:
            # Whatever it is, the thread must live on: a silent death would cost the run.
            logger.exception("A heartbeat failed; it is tried again.")
            if time.monotonic() - renewed_at >= lease_s:
                return False
        else:
            renewed_at = sent_at
    return True
