"""How fast a large ledger answers: a repair plan, the list of runs, a look over the leases.

    python benchmarks/ledger.py [--attempts 1000000] [--url postgresql://...]

The last line has each figure beside its goal; the exit code is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.records import AttemptRequest, RepairRequest, RunRequest
from headrace.ledger.store import Ledger, open_ledger

TASKS = 100
BIG_RUN_ITEMS = 20_000
CHUNK = 5_000
REPEATS = 5
START = datetime(2025, 1, 1, tzinfo=UTC)
GOALS = {"plan_s": 1.0, "big_plan_s": 1.0, "runs_list_cpu_s": 0.3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--url", default=None, help="an empty database; default: a new SQLite file")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        open_ledger(options.url or f"sqlite:///{folder}/ledger.db") as ledger,
    ):
        began = time.perf_counter()
        fill(ledger, options.attempts)
        print(f"{options.attempts} attempts written in {time.perf_counter() - began:.0f} s")
        figures = measure(ledger)
    for name in ("reap_s", "last_success_s", "start_attempt_s", "live_plan_s"):
        print(f"{name} {figures.pop(name):.4f}")
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    print(", ".join(f"{name} {figures[name]:.3f} (goal {goal})" for name, goal in GOALS.items()))
    return 1 if missed else 0


def measure(ledger: Ledger) -> dict[str, float]:
    """Each figure is the best of a few, wall time unless its name says CPU."""
    middle, big = "run-00000001", "run-big"
    run, repair = ledger.create_run(RunRequest(pipeline="p0", entrypoint="e"))
    count = iter(range(1_000_000))

    def start() -> None:
        request = AttemptRequest(task="t", key=str(next(count)))
        ledger.start_attempt(run.id, request, seq=0, token=repair.token or "")

    return {
        "plan_s": best(lambda: ledger.plan_repair(middle, RepairRequest())),
        "big_plan_s": best(lambda: ledger.plan_repair(big, RepairRequest())),
        "runs_list_cpu_s": best(lambda: listings(ledger), time.process_time),
        "reap_s": best(ledger.reap_expired),
        "last_success_s": best(lambda: ledger.last_success("p1", "task7")),
        "start_attempt_s": best(start),
        "live_plan_s": best(lambda: ledger.latest_attempts(middle)),
    }


def listings(ledger: Ledger) -> None:
    """What `headrace runs list` asks, plain and with each filter."""
    shown = ledger.list_runs(limit=50)
    assert len(shown) > 1
    ledger.list_runs(limit=50, pipeline="p1")
    ledger.list_runs(limit=50, state="failed")
    ledger.list_runs(limit=50, pipeline="p1", state="failed", since=START)
    ledger.list_runs(limit=50, since=START + timedelta(days=3650))


def best(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    spent = []
    for _ in range(REPEATS):
        began = clock()
        work()
        spent.append(clock() - began)
    return min(spent)


def fill(ledger: Ledger, attempts: int) -> None:
    """One run of very many items, and runs of a hundred tasks in a chain of layers for the rest."""
    big_items = min(BIG_RUN_ITEMS, attempts // 2)
    runs = max(2, (attempts - big_items) // TASKS)
    names = [f"run-{number:08}" for number in range(runs)]
    rows = [run_row(name, number) for number, name in enumerate(names)]
    insert(ledger, schema.run, iter([*rows, run_row("run-big", 0)]))
    insert(ledger, schema.repair, (repair_row(name) for name in [*names, "run-big"]))
    insert(ledger, schema.attempt, attempt_rows(names, big_items))


def insert(ledger: Ledger, table: sa.Table, rows: Iterator[dict[str, Any]]) -> None:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            write(ledger, table, chunk)
            chunk = []
    write(ledger, table, chunk)


def write(ledger: Ledger, table: sa.Table, chunk: list[dict[str, Any]]) -> None:
    if chunk:
        ledger.database.write(lambda connection: connection.execute(sa.insert(table), chunk))


def run_row(name: str, number: int) -> dict[str, Any]:
    moment = START + timedelta(minutes=number)
    return {
        "id": name,
        "pipeline": f"p{number % 20}",
        "entrypoint": "flows.p.p",
        "parameters": {"rounds": 20, "month": "2013-01"},
        "environment": "local",
        "user": "ada",
        "code_dirty": False,
        "state": "failed" if number % 10 == 1 else "success",
        "created_at": moment,
        "started_at": moment,
        "ended_at": moment + timedelta(seconds=50),
        "tags": {},
    }


def repair_row(name: str) -> dict[str, Any]:
    return {
        "run_id": name,
        "seq": 0,
        "parameters": {},
        "tasks": [],
        "with_dependents": False,
        "profiles": {},
        "planned": [],
        "code_dirty": False,
        "user": "ada",
        "state": "success",
        "created_at": START,
    }


def attempt_rows(names: list[str], big_items: int) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(names):
        for task in range(TASKS):
            waits = [f"task{task - 10}", f"task{task - 9}"] if task > 9 else []
            failed = task == 50 and number % 10 == 1
            yield attempt_row(name, f"p{number % 20}", f"task{task}", "", waits, failed)
    for item in range(big_items):
        yield attempt_row("run-big", "p0", "score", f"k{item}", ["load"], item % 100 == 0)


def attempt_row(
    run_id: str, pipeline: str, task: str, key: str, waits: list[str], failed: bool
) -> dict[str, Any]:
    ref = {"uri": f"/lake/{task}", "version": 3, "schema_hash": "ab" * 32, "row_count": 1}
    return {
        "run_id": run_id,
        "pipeline": pipeline,
        "repair_seq": 0,
        "task": task,
        "key": key,
        "number": 1,
        "state": "failed" if failed else "success",
        "run_if": "all_success",
        "depends_on": waits,
        "profile": "etl",
        "engine": "spark",
        "limits": [],
        "inputs": [{"ref": ref, "mode": "read"}],
        "outputs": [{"ref": ref, "mode": "append"}],
        "result": {"rows": 12345, "auc": 0.75},
        "usage": {"wall_s": 12.5, "cpu_s": 20.1, "peak_mib": 900},
        "started_at": START,
        "ended_at": START,
    }


if __name__ == "__main__":
    sys.exit(main())
