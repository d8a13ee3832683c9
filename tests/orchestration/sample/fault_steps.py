"""Tasks whose effects can be counted."""

import time

import pyarrow as pa
from sample_steps import note

from headrace import TableRef, TaskContext, python_task, read_arrow, write_arrow


@python_task(key="name")
def add_rows(
    name: str, table: str, rows: int, pause: float, context: TaskContext, *, after: object = None
) -> TableRef:
    note(context)
    time.sleep(pause)
    ref = write_arrow(pa.table({"x": [name] * rows}), f"faults/{table}", mode="append")
    time.sleep(pause)
    return ref


@python_task
def count_rows(parts: list[TableRef]) -> int:
    return read_arrow(max(parts, key=lambda part: part.version)).num_rows
