"""Pipelines over the sample tasks."""

import asyncio
from datetime import date

import sample_steps as steps

from headrace import pipeline

OLD_CODE = [True]


def set_old_code(old: bool) -> None:
    """Stands for an edit of the pipeline between a run and its repair."""
    OLD_CODE[0] = old


@pipeline
def add_up(count: int = 4, limit: float = 100.0) -> float:
    value = steps.total(steps.numbers(count))
    if OLD_CODE[0]:
        steps.at_most(value, limit)
    return value


@pipeline
def squares(items: list[int], bad: list[int] = []) -> list[int]:  # noqa: B006
    futures = steps.square.map(items, bad=[bad] * len(items))
    return [future.result() for future in futures]


@pipeline
def chained(count: int = 3) -> float:
    given = steps.numbers.submit(count)
    value = steps.total.submit(given, factor=2)
    steps.at_most.submit(value, 1000.0, wait_for=[given])
    return value.result()


@pipeline
def forgotten(limit: float = 0.5) -> str:
    value = steps.total.submit(steps.numbers.submit(3))
    check = steps.at_most.submit(value, limit)
    steps.day_after.submit(date(2013, 1, 1), wait_for=[check])
    return "done"


@pipeline
def tries(folder: str = "") -> int:
    return steps.flaky(folder)


@pipeline
def refused() -> None:
    steps.wrong_input()


@pipeline
def sleeper(seconds: float = 600) -> None:
    steps.sleep_long(seconds)


@pipeline
def tracked(value: float = 1.5) -> str:
    steps.attach_report()
    return steps.log_to_mlflow(value)


@pipeline
def dated(day: date) -> str:
    return steps.day_after(day)


@pipeline
def framed() -> None:
    steps.give_frame()


@pipeline
def tabled(rows: int = 5, fail: bool = False) -> int:
    return steps.read_back(steps.make_table(rows), fail)


@pipeline
def hungry() -> None:
    steps.eat_memory()


@pipeline
async def waiting(count: int = 2) -> float:
    await asyncio.sleep(0)
    return steps.total(steps.numbers(count))


@pipeline
def outer(count: int = 2) -> float:
    return add_up(count)
