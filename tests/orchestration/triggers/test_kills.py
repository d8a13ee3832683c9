"""kill -9 of what serves, at random moments, loses nothing and doubles nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace import cron
from headrace.ledger.store import open_ledger
from headrace.triggers.schedule import ticks
from tests.orchestration.triggers.serve_loop import BASE

SCRIPT = Path(__file__).parent / "serve_loop.py"
ROOT = Path(__file__).parents[3]
SPEED = 100.0  # a quarter of an hour in nine seconds
KILLS = int(os.environ.get("HEADRACE_TEST_KILLS", "3"))


def start(root, url, zero):
    command = [sys.executable, str(SCRIPT), str(root), url, str(zero), str(SPEED)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (root / "log.txt").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def wait_for(condition, seconds=480):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.2)


def fast_now(zero):
    return BASE + timedelta(seconds=(time.monotonic() - zero) * SPEED)


def effects(root):
    path = root / "effects.txt"
    return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []


def test_kill_9_of_two_that_serve_loses_and_doubles_nothing(tmp_path, url):
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(10**6)))
    print(f"HEADRACE_TEST_SEED={seed} HEADRACE_TEST_KILLS={KILLS}")
    choose = random.Random(seed)
    (tmp_path / "in").mkdir()
    (tmp_path / ".headrace").mkdir()
    zero, written, servers = time.monotonic(), 0, []
    with open_ledger(url) as ledger:
        try:
            servers = [start(tmp_path, url, zero) for _ in range(2)]
            wait_for(lambda: len(ledger.list_triggers()) == 4)
            one_quarter_on = fast_now(zero) + timedelta(minutes=16)
            for _ in range(KILLS):
                end = time.monotonic() + choose.uniform(0.5, 3.0)
                while time.monotonic() < end:
                    written += 1
                    (tmp_path / "in" / f"{written:04}.csv").write_text("x" * written)
                    time.sleep(choose.uniform(0.05, 0.4))
                write_deltalake(
                    str(tmp_path / "lake" / "flights"), pa.table({"x": [1]}), mode="append"
                )
                place = choose.randrange(2)
                servers[place].kill()
                servers[place].wait()
                servers[place] = start(tmp_path, url, zero)
            until = max(fast_now(zero), one_quarter_on)
            (tmp_path / "end.txt").write_text(until.isoformat())
            wait_for(lambda: _is_done(ledger, tmp_path, written, until))
        finally:
            for server in servers:
                server.kill()
                server.wait()
        _check(ledger, tmp_path, written, until)


def _wanted(until):
    """Every time from the beginning of the fast clock on."""
    found = set()
    for name, rule in (("quarter", "*/15 * * * *"), ("skipped-hour", "30 2 * * *")):
        moments = ticks(cron(rule, tz="Europe/Paris"), BASE, until)
        found |= {f"{name}:{moment.isoformat().replace('+00:00', 'Z')}" for moment in moments}
    return found


def _is_done(ledger, root, written, until):
    """All files and all times have had their line, and nothing waits or is at work."""
    files = {path for _, paths in effects(root) for path in paths.split(",") if path}
    cursors = [r.cursor["at"] for r in ledger.list_triggers(["timed"])]
    newest = max(ticks(cron("*/15 * * * *"), BASE, until))
    decided = max(cursors) >= newest.isoformat()
    idle = not any(ledger.active_runs(name) for name in ("timed", "fed"))
    return len(files) == written and decided and idle


def _check(ledger, root, written, until):
    done = Counter(key for key, _ in effects(root))
    assert set(done.values()) == {1}, [key for key, count in done.items() if count > 1]
    files = Counter(path for _, paths in effects(root) for path in paths.split(",") if path)
    assert len(files) == written
    assert set(files.values()) == {1}
    times = {key for key in done if key.startswith(("quarter:", "skipped-hour:"))}
    first = min(key.partition(":")[2] for key in times)
    last = until.isoformat().replace("+00:00", "Z")
    wanted = {key for key in _wanted(until) if first <= key.partition(":")[2] <= last}
    assert wanted <= times, sorted(wanted - times)
    versions = [f.facts["version"] for f in ledger.list_firings("fed", "table", limit=1000)]
    assert versions == sorted(set(versions), reverse=True)
    assert versions[0] == KILLS - 1
    runs = [run for name in ("timed", "fed") for run in ledger.list_runs(limit=5000, pipeline=name)]
    assert {run.trigger_key for run in runs} == set(done)
    assert {run.state for run in runs} == {"success"}


pytestmark = pytest.mark.timeout(900)
