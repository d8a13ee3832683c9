"""Kills a write at its first step, then at its second, ..., each time runs it again and looks.

Run as `python kill_writes.py MODE FOLDER`; prints one line of JSON. It forks instead of starting
processes, so that several dozen kills cost seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
from written import data_files, live_files, rows_of, write_arrow

from headrace.delta import finish, log, write_files
from headrace.delta.log import TableFiles, commit_versions, read_commit
from headrace.delta.snapshot import load_snapshot
from headrace.profiles.storage import Storage

KEY = ("run-1", "task")
OLD = pa.table({"id": [1, 2, 3, 4], "p": ["a", "a", "b", "b"], "x": [0, 0, 0, 0]})
NEW = pa.table({"id": [3, 9], "p": ["b", "c"], "x": [1, 1]})
WRITES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "append": ({"mode": "append"}, [1, 2, 3, 3, 4, 9]),
    "overwrite": ({"mode": "overwrite"}, [3, 9]),
    "merge": ({"mode": "merge", "merge_on": ["id"]}, [1, 2, 3, 4, 9]),
    "replace_where": ({"mode": "overwrite", "replace_where": "id >= 3"}, [1, 2, 3, 9]),
    "new_table": ({"mode": "append"}, [3, 9]),
}


class Killer:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def step(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: Any, name: str) -> None:
        """Make the moments before and after each call of a function steps."""
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = inner(*args, **kwargs)
            self.step()
            return result

        setattr(owner, name, outer)


def watch_all(killer: Killer) -> None:
    """Every step of a write that leaves something behind."""
    for name in ("flush", "close"):
        killer.watch(write_files._OpenFile, name)
    killer.watch(write_files, "split_by_partition")
    for name in ("create", "delete", "read"):
        killer.watch(TableFiles, name)
    for name in ("hardlink_to", "unlink"):
        killer.watch(log.Path, name)
    killer.watch(finish, "remove_files")


def in_child(work: Callable[[], None]) -> int:
    """Run in a fork; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def problems_of(uri: str, wanted: list[int]) -> list[str]:
    """What is wrong with the table after the second run."""
    found = []
    files = TableFiles(uri, Storage())
    ids = sorted(rows_of(load_snapshot(uri).ref())["id"].to_pylist())
    if ids != wanted:
        found.append(f"rows {ids}, not {wanted}")
    orphans = data_files(uri) - live_files(uri)
    if orphans:
        found.append(f"orphans {sorted(orphans)}")
    keyed = sum(
        "txn" in action for v in commit_versions(files) for action in read_commit(files, v) or ()
    )
    if keyed != 1:
        found.append(f"{keyed} commits with the key")
    strangers = [n for n in files.names("_delta_log") if not n.endswith(".json")]
    return found + [f"left in the log: {name}" for name in strangers]


def main(mode: str, folder: str) -> None:
    options, wanted = WRITES[mode]
    report: dict[str, Any] = {"killed": 0, "killed_after_commit": 0, "problems": []}
    at = 0
    while True:
        at += 1
        uri = f"{folder}/{mode}-{at}"

        def prepare(uri: str = uri) -> None:
            if mode != "new_table":
                write_arrow(OLD, uri, partition_by=["p"])

        def write(at: int = at, uri: str = uri) -> None:
            watch_all(Killer(at))
            write_arrow(NEW, uri, key=KEY, **options)

        def look(at: int = at, uri: str = uri) -> None:
            before = len(commit_versions(TableFiles(uri, Storage())))
            ref = write_arrow(NEW, uri, key=KEY, **options)
            problems = problems_of(uri, wanted)
            if ref.version != (0 if mode == "new_table" else 1):
                problems.append(f"version {ref.version}")
            Path(f"{uri}.json").write_text(json.dumps([before, problems]))

        assert in_child(prepare) == 0
        status = in_child(write)
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        assert in_child(look) == 0
        before, problems = json.loads(Path(f"{uri}.json").read_text())
        report["killed"] += 1
        report["killed_after_commit"] += before == (1 if mode == "new_table" else 2)
        report["problems"] += [f"killed at step {at}: {problem}" for problem in problems]
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
