"""What watching costs: 1,000 local Delta tables, and a folder of 100,000 files, once a second.

    python benchmarks/triggers.py [--tables 1000] [--files 100000] [--looks 20]

The last line has each figure beside its goal; the exit code is 1 when one is missed. A share is
CPU time per second of watching, with one look a second.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from headrace.delta.poll import TablePoll
from headrace.orchestration.triggers.files import LocalFiles

GOALS = {"tables_share": 0.05, "files_share": 0.05, "changed_table_ms": 20.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--looks", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        figures = {
            **table_figures(Path(folder), options.tables, options.looks),
            **file_figures(Path(folder), options.files, options.looks),
        }
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    print(", ".join(f"{name} {figures[name]:.4f} (goal {goal})" for name, goal in GOALS.items()))
    return 1 if missed else 0


def table_figures(folder: Path, count: int, looks: int) -> dict[str, float]:
    """The share of a core that the looks take, and the price of a table that has changed."""
    from deltalake import write_deltalake

    first = folder / "tables" / "0"
    for _ in range(12):  # past a checkpoint
        write_deltalake(str(first), pa.table({"x": [1, 2, 3]}), mode="append")
    for number in range(1, count):
        shutil.copytree(first, folder / "tables" / str(number))
    polls = [TablePoll(str(folder / "tables" / str(number))) for number in range(count)]
    begin = time.process_time()
    assert all(poll.look() for poll in polls)
    print(f"first look at {count} tables: {time.process_time() - begin:.2f} s of CPU")
    time.sleep(2.5)  # a folder that has just changed is looked into again
    look_at_all(polls)
    share = cpu_s(lambda: look_at_all(polls), looks)
    print(f"a look at {count} tables: {share * 1000:.1f} ms of CPU")
    changed = []
    for poll in polls[:20]:
        write_deltalake(poll.uri, pa.table({"x": [1]}), mode="append")
        begin = time.process_time()
        state = poll.look()
        assert state is not None
        assert state.version == 12
        assert poll.changes_rows(11)
        changed.append(time.process_time() - begin)
    return {"tables_share": share, "changed_table_ms": 1000 * sum(changed) / len(changed)}


def look_at_all(polls: list[TablePoll]) -> None:
    for poll in polls:
        poll.look()


def file_figures(folder: Path, count: int, looks: int) -> dict[str, float]:
    """The share of a core that watching a full folder takes, its minute's sweep included."""
    place = folder / "files"
    place.mkdir()
    for number in range(count):
        (place / f"{number:06}.csv").touch()
    time.sleep(2.5)
    files = LocalFiles(str(place / "*.csv"))
    begin = time.process_time()
    found = files.look()
    sweep_s = time.process_time() - begin
    assert found is not None
    assert len(found) == count
    quiet_s = cpu_s(files.look, looks)
    (place / "new.csv").touch()
    begin = time.process_time()
    again = files.look()
    new_s = time.process_time() - begin
    assert again is not None
    assert len(again) == count + 1
    print(
        f"{count} files: sweep {sweep_s:.2f} s, quiet look {quiet_s * 1e6:.0f} us, "
        f"look after a new file {new_s:.2f} s of CPU"
    )
    return {"files_share": quiet_s + sweep_s / 60}


def cpu_s(work: Callable[[], object], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begin) / times


if __name__ == "__main__":
    sys.exit(main())
