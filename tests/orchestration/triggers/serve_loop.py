"""Run by the kill test: the loop of `headrace serve` on a fast clock, its runs in processes of their own.

serve_loop.py ROOT URL ZERO SPEED          serve
serve_loop.py --drive URL RUN EFFECTS      drive one run: one line into a file
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

BASE = datetime(2024, 3, 30, 22, tzinfo=UTC)  # the clocks of Europe change three hours later


def drive(url: str, run_id: str, effects: str) -> None:
    from headrace.exceptions import HeadraceError
    from headrace.ledger.store import open_ledger

    with open_ledger(url) as ledger:
        try:
            repair = ledger.claim_repair(run_id, max_concurrent=3)
        except HeadraceError:
            return  # Somebody else has it, or there is no room yet.
        run = ledger.get_run(run_id)
        with Path(effects).open("a") as file:
            file.write(f"{run.trigger_key} {','.join(run.parameters.get('files', []))}\n")
        ledger.finish_run(run_id, 0, "success", token=repair.token)


class Processes:
    """Starts runs as the real starter does, and forgets them as it does when it is killed."""

    def __init__(self, url: str, effects: Path):
        self.url, self.effects, self.running = url, effects, {}

    def start(self, run) -> bool:
        if run.id in self.running:
            return False
        command = [sys.executable, __file__, "--drive", self.url, run.id, str(self.effects)]
        self.running[run.id] = subprocess.Popen(command, start_new_session=True)
        return True

    def starting(self, waiting) -> Counter:
        self.running = {name: p for name, p in self.running.items() if p.poll() is None}
        return Counter(run.pipeline for run in waiting if run.id in self.running)


def now(end: Path, zero: float, speed: float) -> datetime:
    """The fast clock; the test stops it in the end."""
    last = end.read_text() if end.exists() else ""
    moment = BASE + timedelta(seconds=(time.monotonic() - zero) * speed)
    return min(moment, datetime.fromisoformat(last)) if last else moment


def serve(root: Path, url: str, zero: float, speed: float) -> None:
    from headrace import cron, on_files, on_table
    from headrace.ledger.store import open_ledger
    from headrace.orchestration.project import Project
    from headrace.orchestration.triggers import serve as loop
    from headrace.orchestration.triggers.watchers import Surroundings
    from headrace.profiles.models import Environment
    from tests.orchestration.triggers.conftest import served

    loop._OTHERS_S = 2.0
    environment = Environment(
        name="local", source=root / "x.toml", root=root, lake=str(root / "lake")
    )
    project = Project(root=root, state=root / ".headrace", environment=environment)
    pipelines = [
        served(
            cron("*/15 * * * *", tz="Europe/Paris", name="quarter"),
            cron("30 2 * * *", tz="Europe/Paris", name="skipped-hour"),
            name="timed",
            catch_up="all",
            when_busy="queue",
            max_concurrent=3,
        ),
        served(
            on_files(
                "in/*.csv", settle_s=0.1, name="files", parameters={"files": "{{trigger.files}}"}
            ),
            on_table("flights", name="table"),
            name="fed",
            when_busy="queue",
            max_concurrent=3,
        ),
    ]
    with open_ledger(url) as ledger:
        around = Surroundings(
            project=project,
            ledger=ledger,
            now=partial(now, root / "end.txt", zero, speed),
        )
        starter = Processes(url, root / "effects.txt")
        loop.Serving(around, pipelines, starter, poll_s=0.1).run(threading.Event())


if __name__ == "__main__":
    if sys.argv[1] == "--drive":
        drive(*sys.argv[2:])
    else:
        serve(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
