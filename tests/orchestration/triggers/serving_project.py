"""A project that `headrace serve` serves as a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time

from headrace.ledger.store import open_ledger

FLOWS = """
import time

from headrace import cron, interval, on_files, on_pipeline, pipeline, python_task


@python_task(key="item")
def handle(item: str) -> str:
    print("handling", item)
    if "bad" in item:
        raise ValueError(f"{item} can't be read")
    if "slow" in item:
        time.sleep(900)
    return item


@pipeline(
    triggers=[
        on_files("in/*.csv", settle_s=0, name="files", parameters={"files": "{{ trigger.files }}"}),
        cron("0 6 * * *", tz="Europe/Paris", name="morning"),
    ],
    notify=["webhook/ours"],
)
def arrive(files: list[str] = []) -> list[str]:
    return [handle(file) for file in files]


@pipeline(triggers=[on_pipeline("arrive", parameters={"run_id": "{{ trigger.run_id }}"})])
def follow(run_id: str) -> str:
    return handle(run_id)
"""
PROFILE = '[profiles.small]\nengine = "python"\nmemory = "512MiB"\nprice_per_hour = 3600\n'


def wait_for(look, seconds=400):
    """What `look` gives, once that is something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.5)
    return found


class Project:
    """A project folder, the ledger, and the process that serves it.

    Args:
        root: Where the project is made.
        environment: What is added to its `local.toml`.
        ledger_url: The ledger; by default SQLite in the project.
    """

    def __init__(self, root, *, environment="", ledger_url=None):
        self.root, self.process = root, None
        (root / "flows").mkdir(parents=True)
        (root / "in").mkdir()
        (root / "infra" / "profiles").mkdir(parents=True)
        (root / "flows" / "arriving.py").write_text(FLOWS)
        (root / "infra" / "profiles" / "local.toml").write_text(environment + PROFILE)
        self.ledger = open_ledger(ledger_url or f"sqlite:///{root}/.headrace/ledger.db")

    def headrace(self, *arguments):
        """What a command prints."""
        command = [sys.executable, "-m", "headrace", *arguments]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def serve(self):
        """Start to serve, and wait until it does."""
        path = self.root / "serve.log"
        before = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "headrace", "serve"],
                cwd=self.root,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: b"Serving" in path.read_bytes()[before:])

    def runs(self, pipeline, count, state="success"):
        """Wait until a pipeline has so many runs and the newest is in a state."""

        def look():
            found = self.ledger.list_runs(pipeline=pipeline)
            over = len(found) == count and found[0].state not in ("queued", "running")
            assert not over or found[0].state == state, found[0]
            return found if over else None

        return wait_for(look)
