"""A worker process of per-group training on one machine; it imports little, to start soon."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headrace.ml.group_rows import to_pandas
from headrace.ml.group_work import train_group
from headrace.ml.sampling import sample_batches

_BATCH_ROWS: Final = 10_000


def work(told: bytes) -> None:
    """Train the groups that the driver lets this process have."""
    address, path, items, plans = pickle.loads(told)  # noqa: S301 - from our driver
    with pa.memory_map(path) as file:
        rows = pa.ipc.open_file(file).read_all()
        for number, start, end in items:
            group = rows.slice(start, end - start)
            if plans is None:
                train_group(address, number, partial(to_pandas, group))
                continue
            total, wanted, seed = plans[number]
            if wanted is None:
                train_group(address, number, partial(_batches, group), streaming=True)
            else:
                load = partial(sample_batches, _batches(group), total, wanted, seed)
                train_group(address, number, load)


def _batches(rows: pa.Table) -> Iterator[Any]:
    for at in range(0, rows.num_rows, _BATCH_ROWS):
        yield to_pandas(rows.slice(at, _BATCH_ROWS))


if __name__ == "__main__":
    work(sys.stdin.buffer.read())
