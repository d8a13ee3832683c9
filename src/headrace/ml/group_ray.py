"""Groups of a table on Ray: counted and split where files are read, trained bin by bin."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.bridge.plan import ReadTask
from headrace.bridge.read import apply_filter, plain_request
from headrace.bridge.source import plan_request, read_task_function
from headrace.context import current_context
from headrace.engines.own_errors import own_error
from headrace.ml.group_plan import Group
from headrace.ml.group_rows import ARROW_SCHEME, group_codes, measure, to_pandas
from headrace.ml.group_source import Counted, Source, batch_plans, group_list
from headrace.ml.group_work import train_group
from headrace.ml.hosts import ray_host
from headrace.ml.sampling import sample_batches
from headrace.ml.wire import Address

_GROUP: Final = "__headrace_group"
_BATCH_ROWS: Final = 10_000

Read = Callable[[], Iterator[pa.Table]]


class RayGroups:
    """The groups of one table version on a Ray cluster.

    The rows are read twice, to count and to split them, and lie in the object store once.

    Args:
        source: The table.
    """

    scheme = ARROW_SCHEME

    def __init__(self, source: Source) -> None:
        self._source = source
        self.host = ray_host()
        request, _ = apply_filter(plain_request(source.snapshot), source.filter)
        request = request.select(list(source.columns))
        tasks: list[ReadTask] = plan_request(request)
        self._reads = [read_task_function(request.spec, task.files) for task in tasks]
        self._bin_of: dict[int, int] = {}
        self._groups: dict[int, Group] = {}
        self._pieces: list[list[Any]] = []
        current_context().record_read(source.ref)

    def count(self) -> Counted:
        """Rows, bytes and fingerprint of every group, and nulls by column, in one pass."""
        import ray

        counting = ray.remote(num_cpus=1)(_count)
        found = _get([counting.remote(read, self._source.by) for read in self._reads])
        measured: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        nulls = dict.fromkeys(self._source.columns, 0)
        for part, missing in found:
            for key, (rows, size, hashed) in part.items():
                before = measured.get(key, (0, 0, 0))
                total = (before[2] + hashed) % 2**64
                measured[key] = (before[0] + rows, before[1] + size, total)
            for name, number in missing.items():
                nulls[name] += number
        return Counted(group_list(measured), nulls)

    def place(self, groups: Sequence[Group], bins: Sequence[Sequence[int]]) -> None:
        """Split the rows by bin; they stay in the object store."""
        import ray

        self._groups = {group.number: group for group in groups}
        self._bin_of = {number: place for place, found in enumerate(bins) for number in found}
        where = ray.put({
            group.key: (group.number, self._bin_of[group.number])
            for group in groups
            if group.number in self._bin_of
        })  # fmt: skip
        split = ray.remote(num_cpus=1, num_returns=len(bins))(_split)
        parts = [split.remote(read, self._source.by, where, len(bins)) for read in self._reads]
        # One bin is one return value, and then Ray gives no list.
        listed = [part if isinstance(part, list) else [part] for part in parts]
        self._pieces = [[part[place] for part in listed] for place in range(len(bins))]
        pending = [piece for pieces in self._pieces for piece in pieces]
        while pending:
            ready, pending = ray.wait(pending, num_returns=len(pending), timeout=1)
            failed = [piece for piece in ready if _error_of(piece) is not None]
            if failed:
                _get(failed)

    def train(self, address: Address, numbers: Sequence[int]) -> RayJob:
        """Train groups, each with all its rows as one frame."""
        return self._start(address, numbers, None)

    def train_batches(
        self, address: Address, numbers: Sequence[int], samples: dict[int, int] | None, seed: int
    ) -> RayJob:
        """Train groups of which a worker never holds all rows as pandas."""
        plans = batch_plans(self._groups, numbers, samples, seed)
        return self._start(address, numbers, plans)

    def close(self) -> None:
        """Let the object store have its memory back."""
        self._pieces = []

    def _start(
        self, address: Address, numbers: Sequence[int], plans: dict[int, Any] | None
    ) -> RayJob:
        import ray

        # Ray would try a task again whose worker was lost; the driver decides on that.
        task = ray.remote(num_cpus=1, max_retries=0)(_train_bin)
        wanted: dict[int, list[int]] = {}
        for number in numbers:
            wanted.setdefault(self._bin_of[number], []).append(number)
        return RayJob([
            task.remote(address, self._pieces[place], found, plans)
            for place, found in sorted(wanted.items())
        ])  # fmt: skip


class RayJob:
    """Ray tasks that belong together.

    Args:
        tasks: Their references.
    """

    def __init__(self, tasks: list[Any]) -> None:
        self._tasks = tasks
        self._pending = list(tasks)

    def alive(self) -> bool:
        """Whether any goes on."""
        import ray

        if self._pending:
            _, self._pending = ray.wait(
                self._pending, num_returns=len(self._pending), timeout=0, fetch_local=False
            )
        return bool(self._pending)

    def problem(self) -> BaseException | None:
        """Why the first of those that failed did, or None."""
        return next(filter(None, map(_error_of, self._tasks)), None)

    def cancel(self) -> None:
        """Kill their workers."""
        import ray

        for task in self._pending:
            with contextlib.suppress(Exception):
                ray.cancel(task, force=True)
        if self._pending:
            ray.wait(self._pending, num_returns=len(self._pending), timeout=60)


def _get(refs: list[Any]) -> list[Any]:
    import ray

    try:
        return list(ray.get(refs))
    except Exception as error:
        told = own_error(error)
        if told is error:
            raise
        raise told from error


def _error_of(ref: Any) -> BaseException | None:
    import ray

    try:
        ray.get(ref)
    except Exception as error:  # noqa: BLE001 - looked at by the driver
        return own_error(error)
    return None


def _count(read: Read, by: Sequence[str]) -> tuple[dict[Any, Any], dict[str, int]]:
    found: dict[Any, tuple[int, int, int]] = {}
    nulls: dict[str, int] = {}
    for table in read():
        for key, (rows, size, hashed) in measure(table, by).items():
            before = found.get(key, (0, 0, 0))
            total = (before[2] + hashed) % 2**64
            found[key] = (before[0] + rows, before[1] + size, total)
        for name in table.column_names:
            nulls[name] = nulls.get(name, 0) + table[name].null_count
    return found, nulls


def _split(read: Read, by: Sequence[str], where: dict[Any, Any], bins: int) -> Any:
    """The rows of each bin, with their group's number."""
    parts: list[list[pa.Table]] = [[] for _ in range(bins)]
    for table in read():
        codes, keys = group_codes(table, by)
        nowhere = (-1, -1)
        numbers = np.array([where.get(key, nowhere)[0] for key in keys], dtype=np.int32)
        places = np.array([where.get(key, nowhere)[1] for key in keys], dtype=np.int32)[codes]
        marked = table.append_column(_GROUP, pa.array(numbers[codes]))
        for place in np.unique(places[places >= 0]).tolist():
            parts[place].append(marked.filter(pa.array(places == place)))
    found = [pa.concat_tables(part) if part else None for part in parts]
    return found[0] if bins == 1 else found


def _train_bin(
    address: Address, pieces: list[Any], numbers: Sequence[int], plans: dict[int, Any] | None
) -> int:
    """Train the wanted groups of a bin one after the other; how many were tried."""
    import ray

    tables = [table for table in ray.get(pieces) if table is not None]
    done = 0
    if plans is not None:
        for number in numbers:
            rows, wanted, seed = plans[number]
            batches = _batches(tables, number)
            if wanted is None:
                done += train_group(address, number, partial(iter, batches), streaming=True)
            else:
                load = partial(sample_batches, batches, rows, wanted, seed)
                done += train_group(address, number, load)
        return done
    joined = pa.concat_tables(tables)
    marks = joined[_GROUP].to_numpy()
    joined = joined.drop_columns([_GROUP])
    # Rows of a group stay in the order of the table's files.
    order = np.argsort(marks, kind="stable")
    ends = np.searchsorted(marks[order], numbers, side="right")
    starts = np.searchsorted(marks[order], numbers, side="left")
    for number, start, end in zip(numbers, starts, ends, strict=True):
        rows = pa.array(order[start:end])
        done += train_group(address, number, partial(_take, joined, rows))
    return done


def _take(table: pa.Table, rows: pa.Array) -> Any:
    return to_pandas(table.take(rows))


def _batches(tables: Iterable[pa.Table], number: int) -> Iterator[Any]:
    """One group's rows, some at a time."""
    for table in tables:
        mask = pa.array(table[_GROUP].to_numpy() == number)
        for at in range(0, table.num_rows, _BATCH_ROWS):
            rows = table.slice(at, _BATCH_ROWS).filter(mask.slice(at, _BATCH_ROWS))
            if rows.num_rows:
                yield to_pandas(rows.drop_columns([_GROUP]))
