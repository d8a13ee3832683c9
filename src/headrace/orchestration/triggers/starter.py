"""Starts runs, each in a process of its own that outlives the one that serves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from headrace.ledger.records import RunRecord
from headrace.orchestration.project import Project
from headrace.orchestration.triggers.start import EXIT_BUSY

log = logging.getLogger("headrace.serve")

_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0


class Starter(Protocol):
    """What starts runs."""

    def start(self, run: RunRecord) -> bool:
        """Start a run, unless that was tried a moment ago."""

    def starting(self, waiting: list[RunRecord]) -> Counter[str]:
        """How many runs of each pipeline are being started and still wait in the ledger."""


@dataclass
class ProcessStarter:
    """Starts each run with `python -m headrace.orchestration.triggers.start`.

    The processes are in sessions of their own: they go on when the one that serves ends or is
    killed, and the next one finds their runs in the ledger.

    Args:
        project: The project.
    """

    project: Project
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _tries: Counter[str] = field(default_factory=Counter)
    _not_before: dict[str, float] = field(default_factory=dict)

    def start(self, run: RunRecord) -> bool:
        """Start a run, unless it is being started or was tried a moment ago."""
        self._tend()
        known = run.id in self._processes
        self.spawn(run.id, [run.id], pipeline=run.pipeline)
        return not known and run.id in self._processes

    def starting(self, waiting: list[RunRecord]) -> Counter[str]:
        """How many runs of each pipeline are being started and still wait in the ledger."""
        self._tend()
        return Counter(run.pipeline for run in waiting if run.id in self._processes)

    def spawn(self, name: str, arguments: list[str], *, pipeline: str) -> None:
        """Start the process of a run; what it prints goes to a file."""
        if name in self._processes or time.monotonic() < self._not_before.get(name, 0.0):
            return
        path = log_path(self.project, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "HEADRACE_PROJECT": str(self.project.root),
            "HEADRACE_STATE": str(self.project.state),
            "HEADRACE_ENV": self.project.environment.name,
        }
        with path.open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "headrace.orchestration.triggers.start", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.project.root,
                env=environment,
                start_new_session=True,
            )
        log.info("%s: starting run %s", pipeline, name)

    def _tend(self) -> None:
        """Collect what has ended; what ended badly is tried again, later and later."""
        for name, process in tuple(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[name]
            if code == 0:
                self._tries.pop(name, None)
                self._not_before.pop(name, None)
                continue
            self._tries[name] += code != EXIT_BUSY
            pause = min(_FIRST_PAUSE_S * 2.0 ** min(self._tries[name], 10), _LONGEST_PAUSE_S)
            self._not_before[name] = time.monotonic() + (1.0 if code == EXIT_BUSY else pause)
            if code != EXIT_BUSY:
                log.error(
                    "run %s: its process ended with code %s; see %s",
                    name,
                    code,
                    log_path(self.project, name),
                )


def log_path(project: Project, name: str) -> Path:
    """Where the process of a run prints to."""
    return project.state / "serve" / f"{name}.log"
