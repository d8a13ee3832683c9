"""How much runs at once: the machine's cores and memory, and a task's own limit.

Tasks of one process queue here. What other processes hold is in the ledger: an attempt starts only
if its shares fit beside those of all live attempts, so that a crashed process frees them with its
leases.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from headrace.exceptions import TaskCancelledError
from headrace.ledger.leases import own_host
from headrace.ledger.records import Share

if TYPE_CHECKING:
    from headrace.profiles.models import PythonProfile, RayProfile, SparkProfile

Shares = Mapping[str, Share]


class Slots:
    """Limits that the tasks of one process share. A task waits until all that it takes is free."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, task: str, shares: Shares, cancel: threading.Event) -> Iterator[None]:
        """Wait for room, and keep it inside the block.

        Args:
            task: Name of the task.
            shares: What it takes, by the name of the limit.
            cancel: Ends the wait.

        Raises:
            TaskCancelledError: `cancel` was set while waiting.
        """
        with self._changed:
            while not self._fits(shares):
                check_not_cancelled(task, cancel)
                self._changed.wait(timeout=1)
            check_not_cancelled(task, cancel)
            self._used.update({name: share.take for name, share in shares.items()})
        try:
            yield
        finally:
            with self._changed:
                self._used.subtract({name: share.take for name, share in shares.items()})
                self._changed.notify_all()

    def _fits(self, shares: Shares) -> bool:
        return all(self._used[name] + share.take <= share.most for name, share in shares.items())


def check_not_cancelled(task: str, cancel: threading.Event) -> None:
    """Raise once `cancel` is set, for a task that has no process yet."""
    if cancel.is_set():
        raise TaskCancelledError(
            task=task, how="was waiting for cores and memory", log_path="", tail=""
        )


def machine_shares(
    profile: SparkProfile | RayProfile | PythonProfile,
    *,
    cores: int | None = None,
    memory_mib: int | None = None,
) -> dict[str, Share]:
    """What an attempt on a profile takes of this machine.

    A profile larger than the machine takes all of it and runs alone, so that nothing waits for
    ever. One that works elsewhere takes nothing.

    Args:
        profile: The attempt's profile.
        cores: Cores of the machine, if not what there is.
        memory_mib: Memory of the machine, if not what there is.
    """
    if profile.where != "local":
        return {}
    have = {
        "cores": cores or os.cpu_count() or 1,
        "memory": memory_mib or psutil.virtual_memory().total // 2**20,
    }
    want = {"cores": profile.cores, "memory": profile.memory_mib}
    return {
        f"{name} of {own_host()}": Share(take=min(want[name], most), most=most)
        for name, most in have.items()
    }


def task_share(pipeline: str, task: str, concurrency: int | None) -> dict[str, Share]:
    """What an attempt takes of its task's `concurrency`, over all runs of the pipeline."""
    return {f"{pipeline}.{task}": Share(most=concurrency)} if concurrency else {}
