"""Work in Spark that another thread can end: a tuning worker, groups that are trained, a study."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.ml.engine import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.5


class SparkJob:
    """Runs a function in a thread of its own, and ends the Spark jobs that it has started.

    A classic session gets a job group, which is set for that thread and ends with it; over Connect
    there are no groups, and a tag does the same.

    Args:
        spark: The session.
        name: Starts the group's name, for Spark's page.
        work: What starts the jobs; its result is thrown away.
    """

    def __init__(self, spark: SparkSession, name: str, work: Callable[[], Any]) -> None:
        self._spark = spark
        self._work = work
        self._tag = f"{name}-{uuid.uuid4().hex[:12]}"
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self._tag, daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def alive(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for so many seconds at most."""
        self._thread.join(timeout_s)

    def problem(self) -> BaseException | None:
        """Why it failed, or None."""
        return self._error

    def cancel(self, timeout_s: float = 60) -> None:
        """End it, also a job that is just about to start; Spark ends its Python workers.

        Args:
            timeout_s: Seconds to wait for the end; `alive()` says whether it came.
        """
        until = time.monotonic() + timeout_s
        while self.alive() and time.monotonic() < until:
            with contextlib.suppress(Exception):
                if is_connect(self._spark):
                    self._spark.interruptTag(self._tag)
                else:
                    self._spark.sparkContext.cancelJobGroup(self._tag)
            self.join(_LOOK_S)

    def _run(self) -> None:
        try:
            if is_connect(self._spark):
                self._spark.addTag(self._tag)
            else:
                context = self._spark.sparkContext
                context.setJobGroup(self._tag, self._tag, interruptOnCancel=True)
            self._work()
        except BaseException as error:  # noqa: BLE001 - looked at where it is waited for
            self._error = error
