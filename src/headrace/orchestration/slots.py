"""How many tasks run at once on this machine: as many as its cores and memory can carry."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from headrace.exceptions import TaskCancelledError


class Slots:
    """Cores and memory that the tasks of one process share.

    A task waits until what its profile reserves is free. A profile larger than the machine runs
    alone, so that nothing waits for ever.

    Args:
        cores: Cores to hand out; the machine's by default.
        memory_mib: Memory to hand out, in MiB; the machine's by default.
    """

    def __init__(self, cores: int | None = None, memory_mib: int | None = None) -> None:
        self.cores = cores or os.cpu_count() or 1
        self.memory_mib = memory_mib or psutil.virtual_memory().total // 2**20
        self._used: list[tuple[int, int]] = []
        self._changed = threading.Condition()

    @contextmanager
    def hold(
        self, task: str, cores: int, memory_mib: int, cancel: threading.Event
    ) -> Iterator[None]:
        """Wait for room, and keep it inside the block.

        Args:
            task: Name of the task.
            cores: Cores of the task's profile.
            memory_mib: Memory of the task's profile, in MiB.
            cancel: Ends the wait.

        Raises:
            TaskCancelledError: `cancel` was set while waiting.
        """
        claim = min(cores, self.cores), min(memory_mib, self.memory_mib)
        with self._changed:
            while not self._fits(claim):
                if cancel.is_set():
                    raise TaskCancelledError(
                        task=task, how="was waiting for cores and memory", log_path="", tail=""
                    )
                self._changed.wait(timeout=1)
            self._used.append(claim)
        try:
            yield
        finally:
            with self._changed:
                self._used.remove(claim)
                self._changed.notify_all()

    def _fits(self, claim: tuple[int, int]) -> bool:
        cores = claim[0] + sum(used for used, _ in self._used)
        memory = claim[1] + sum(used for _, used in self._used)
        return cores <= self.cores and memory <= self.memory_mib
