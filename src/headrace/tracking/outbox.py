"""A folder that keeps what MLflow could not take, until it can."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from headrace.tracking.records import RunLog


class Outbox:
    """Log records that wait for MLflow, one JSON file each, sent in the order they were made.

    Args:
        folder: Where the files are kept; made when the first record is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, log: RunLog) -> Path:
        """Save a record; a crash leaves either the whole file or none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._next_place():020d}-{uuid.uuid4().hex[:8]}.json"
        partial = self.folder / f".{name}.partial"
        with partial.open("w", encoding="utf-8") as file:
            file.write(log.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        return partial.rename(self.folder / name)

    def _next_place(self) -> int:
        """The time, or just after what waits already: a clock that is set back changes no order."""
        waiting = self.waiting()
        last = int(waiting[-1].name.partition("-")[0]) if waiting else 0
        return max(time.time_ns(), last + 1)

    def waiting(self) -> list[Path]:
        """The kept records, oldest first."""
        return sorted(self.folder.glob("[0-9]*.json")) if self.folder.is_dir() else []

    def flush(self, send: Callable[[RunLog], None]) -> int:
        """Send what waits, and stop at the first that fails.

        Args:
            send: Logs one record; an exception from it means that it was not logged.

        Returns:
            How many records were sent and removed.
        """
        sent = 0
        for path in self.waiting():
            try:
                send(RunLog.model_validate_json(path.read_text(encoding="utf-8")))
            except Exception:  # noqa: BLE001 - whatever the reason, the record stays for later
                break
            path.unlink(missing_ok=True)
            sent += 1
        return sent
