"""Groups of a table in processes of this machine, over a file that all of them map."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.delta.arrow import read_arrow
from headrace.ml.group_plan import Group
from headrace.ml.group_rows import ARROW_SCHEME, group_codes, measure
from headrace.ml.group_source import Counted, Source, batch_plans, group_list
from headrace.ml.hosts import LOOPBACK
from headrace.ml.wire import Address


class LocalGroups:
    """The groups of one table version, read into this process.

    Args:
        source: The table.
        workers: Processes that train at once.
    """

    host = LOOPBACK
    scheme = ARROW_SCHEME

    def __init__(self, source: Source, workers: int) -> None:
        self._source = source
        self._workers = workers
        self._table = read_arrow(source.ref, columns=source.columns, filter=source.filter)
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-groups-")
        self._ranges: dict[int, tuple[int, int]] = {}
        self._groups: dict[int, Group] = {}
        self._order: list[int] = []

    def count(self) -> Counted:
        """Rows, bytes and fingerprint of every group, and nulls by column."""
        nulls = {name: self._table[name].null_count for name in self._source.columns}
        measured = measure(self._table, self._source.by) if self._table.num_rows else {}
        return Counted(group_list(measured), nulls)

    def place(self, groups: Sequence[Group], bins: Sequence[Sequence[int]]) -> None:
        """Write the rows by group; this process needs them no more."""
        self._groups = {group.number: group for group in groups}
        self._order = [number for found in bins for number in found]
        wanted = {self._groups[number].key: number for number in self._order}
        codes, keys = group_codes(self._table, self._source.by)
        numbers = np.array([wanted.get(key, -1) for key in keys], dtype=np.int64)[codes]
        # Rows of a group stay in the order of the table's files.
        order = np.argsort(numbers, kind="stable")
        order = order[np.searchsorted(numbers[order], 0) :]
        for number in self._order:
            start, end = np.searchsorted(numbers[order], [number, number + 1])
            self._ranges[number] = int(start), int(end)
        rows = self._table.take(pa.array(order))
        with pa.OSFile(self._path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        self._table = rows.schema.empty_table()

    def train(self, address: Address, numbers: Sequence[int]) -> LocalJob:
        """Train groups, each with all its rows as one frame."""
        return self._start(address, numbers, None)

    def train_batches(
        self, address: Address, numbers: Sequence[int], samples: dict[int, int] | None, seed: int
    ) -> LocalJob:
        """Train groups of which a worker never holds all rows as pandas."""
        plans = batch_plans(self._groups, numbers, samples, seed)
        return self._start(address, numbers, plans)

    def close(self) -> None:
        """Remove the file."""
        self._folder.cleanup()

    @property
    def _path(self) -> str:
        return str(Path(self._folder.name, "rows.arrow"))

    def _start(
        self, address: Address, numbers: Sequence[int], plans: dict[int, Any] | None
    ) -> LocalJob:
        """Every worker is told of every group: the driver gives each to the first that asks."""
        wanted = set(numbers)
        items = [(n, *self._ranges[n]) for n in self._order if n in wanted]
        told = pickle.dumps((address, self._path, items, plans))
        return LocalJob(told, min(self._workers, len(items)))


class LocalJob:
    """Some worker processes with the same work.

    Args:
        told: What each reads from its stdin, where nobody else sees it.
        workers: How many.
    """

    def __init__(self, told: bytes, workers: int) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._processes = []
        for _ in range(workers):
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace.ml.group_local_work"],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
            )
            self._processes.append(process)
            assert process.stdin is not None  # noqa: S101 - it was asked for
            process.stdin.write(told)
            process.stdin.close()

    def alive(self) -> bool:
        """Whether any works."""
        return any(process.poll() is None for process in self._processes)

    def problem(self) -> BaseException | None:
        """Why the first of those that failed did, or None."""
        codes = [process.returncode for process in self._processes if process.returncode]
        if not codes:
            return None
        how = f"by signal {-codes[0]}" if codes[0] < 0 else f"with code {codes[0]}"
        return RuntimeError(f"a worker process exited unexpectedly, {how}")

    def cancel(self) -> None:
        """Kill them."""
        for process in self._processes:
            process.kill()
            process.wait()
