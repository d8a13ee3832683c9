"""Tasks with conditions, limits and rules for retries."""

import os
import time
from pathlib import Path

from sample_steps import note

from headrace import TaskContext, python_task


class BusyError(ConnectionError):
    """A service has no time."""


class GoneError(ConnectionError):
    """A service is no more."""


@python_task
def work(fail: bool, context: TaskContext) -> str:
    note(context)
    if fail:
        raise RuntimeError("told to fail")
    return "done"


@python_task(key="name")
def step(name: str, fail: bool, context: TaskContext) -> str:
    note(context)
    if fail:
        raise RuntimeError(f"{name} was told to fail")
    return name


@python_task(key="name")
def after(name: str, given: list, context: TaskContext) -> list:
    note(context)
    return given


@python_task(run_if="at_least_one_failed")
def call_for_help(given: str | None, context: TaskContext) -> str:
    note(context)
    return f"help, not {given}"


@python_task(run_if="all_done")
def tidy_up(context: TaskContext, *, given: str | None = None, seconds: float = 0) -> str:
    note(context)
    Path(os.environ["SAMPLE_NOTES"] + ".tidy").write_text(str(os.getpid()))
    time.sleep(seconds)
    return f"tidied after {given}"


@python_task
def choose(branch: str, context: TaskContext) -> str:
    note(context)
    return branch


@python_task
def go_left(context: TaskContext) -> str:
    note(context)
    return "left"


@python_task
def go_right(context: TaskContext) -> str:
    note(context)
    return "right"


@python_task
def finish_way(way: str, fail: bool, context: TaskContext) -> str:
    note(context)
    if fail:
        raise RuntimeError("told to fail")
    return way


@python_task(key="item", concurrency=2)
def limited(item: int, bad: list[int], context: TaskContext) -> int:
    """Count how many run at once, by files that each makes and removes."""
    note(context)
    folder = Path(os.environ["SAMPLE_NOTES"] + ".now")
    folder.mkdir(exist_ok=True)
    mine = folder / str(item)
    mine.touch()
    now = len(list(folder.iterdir()))
    time.sleep(0.3)
    mine.unlink()
    with Path(os.environ["SAMPLE_NOTES"] + ".most").open("a") as file:
        file.write(f"{now}\n")
    if item in bad:
        raise RuntimeError(f"{item} is bad")
    return item


@python_task(retries=3, retry_delay_seconds=0, retry_on=[ConnectionError], no_retry_on="GoneError")
def connect(errors: list[str], context: TaskContext) -> int:
    note(context)
    kinds = {"busy": BusyError, "gone": GoneError, "value": ValueError}
    if context.attempt <= len(errors):
        raise kinds[errors[context.attempt - 1]]("no")
    return context.attempt


@python_task(retries=1, retry_delay_seconds=600)
def patient(context: TaskContext) -> None:
    note(context)
    Path(os.environ["SAMPLE_NOTES"] + ".pid").write_text(str(os.getpid()))
    raise OSError("not now")
