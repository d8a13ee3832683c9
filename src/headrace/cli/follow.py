"""Prints an attempt's log, and goes on while it grows."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ledger.records import AttemptRecord
    from headrace.ledger.store import Ledger

_CHUNK = 2**16
_POLL_S = 0.5


def print_log(ledger: Ledger, attempt: AttemptRecord, *, follow: bool) -> None:
    """Copy a log to stdout.

    Args:
        ledger: Tells when the attempt has ended.
        attempt: Whose log.
        follow: Wait for more until the attempt has ended.
    """
    path = Path(attempt.log_path) if attempt.log_path else None
    if path is None or not (path.exists() or follow):
        sys.stderr.write(f"{attempt.name}: there is no log file ({attempt.state}).\n")
        return
    position = 0
    while True:
        over = not follow or _ended(ledger, attempt)
        position = _copy(path, position)
        if over:
            return
        time.sleep(_POLL_S)


def _ended(ledger: Ledger, attempt: AttemptRecord) -> bool:
    # The flow may be gone: then nobody else ends the attempt.
    ledger.reap_expired()
    now = ledger.get_attempt(attempt.id)
    return now is None or now.state not in ("queued", "running")


def _copy(path: Path, position: int) -> int:
    if not path.exists():
        return position
    with path.open("rb") as file:
        file.seek(position)
        while chunk := file.read(_CHUNK):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return file.tell()
