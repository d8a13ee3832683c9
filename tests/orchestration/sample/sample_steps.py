"""Small tasks for the tests: each notes in a file that it ran."""

import os
import time
from datetime import date
from pathlib import Path

from headrace import TableRef, TaskContext, python_task


def note(context: TaskContext) -> None:
    """One line per execution, outside everything that headrace keeps."""
    line = f"{context.task}/{context.key}\n" if context.key else f"{context.task}\n"
    with Path(os.environ["SAMPLE_NOTES"]).open("a") as file:
        file.write(line)


@python_task
def numbers(count: int, context: TaskContext) -> dict[str, list[int]]:
    note(context)
    print("counting to", count)
    return {"numbers": list(range(count))}


@python_task(profile="other", tags={"sums"})
def total(given: dict, context: TaskContext, *, factor: int = 1) -> float:
    note(context)
    return float(sum(given["numbers"]) * factor)


@python_task
def at_most(value: float, limit: float, context: TaskContext) -> bool:
    note(context)
    if value > limit:
        raise ValueError(f"{value} is more than {limit}")
    return True


@python_task(key="item")
def square(item: int, bad: list[int], context: TaskContext) -> int:
    note(context)
    if item in bad:
        raise RuntimeError(f"{item} is bad")
    return item * item


@python_task(retries=2, retry_delay_seconds=0)
def flaky(folder: str, context: TaskContext) -> int:
    note(context)
    if context.attempt < 3:
        raise OSError(f"try {context.attempt} does not work")
    return context.attempt


@python_task(retries=2, retry_delay_seconds=0)
def wrong_input(context: TaskContext) -> None:
    from headrace import UserError

    note(context)
    raise UserError(message="the month has no such day")


@python_task
def sleep_long(seconds: float, context: TaskContext) -> None:
    note(context)
    Path(os.environ["SAMPLE_NOTES"] + ".pid").write_text(str(os.getpid()))
    time.sleep(seconds)


@python_task
def log_to_mlflow(value: float, context: TaskContext) -> str:
    import mlflow

    note(context)
    print("logging", value)
    mlflow.log_metric("mine", value)
    mlflow.log_text("hello", "hello.txt")
    return mlflow.active_run().info.run_id


@python_task
def attach_report(context: TaskContext) -> str:
    path = Path.cwd() / "report.html"
    path.write_text("<h1>Report</h1>")
    context.attach("Report", path=path, markdown="**All well**")
    return str(path)


@python_task
def day_after(day: date) -> str:
    assert isinstance(day, date)
    return str(day.replace(day=day.day + 1))


@python_task
def give_frame() -> object:
    import pandas as pd

    return pd.DataFrame({"a": [1]})


@python_task
def make_table(rows: int, context: TaskContext) -> TableRef:
    import pyarrow as pa

    from headrace import write_arrow

    note(context)
    return write_arrow(pa.table({"x": list(range(rows))}), "sample/numbers", mode="overwrite")


@python_task
def read_back(table: TableRef, fail: bool, context: TaskContext) -> int:
    from headrace import read_arrow

    note(context)
    rows = read_arrow(table).num_rows
    if fail:
        raise ValueError("told to fail")
    return rows


@python_task(profile="tiny")
def eat_memory() -> int:
    data = bytearray(400 * 2**20)
    time.sleep(30)
    return len(data)
