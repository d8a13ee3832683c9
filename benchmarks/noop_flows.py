"""The same empty tasks under Prefect alone and under headrace, for `overhead.py`."""

from noop_tasks import nothing_in_headrace
from prefect import flow, task

from headrace import pipeline


@task
def nothing_in_prefect(number: int) -> int:
    return number


@flow
def prefect_flow(count: int) -> int:
    return sum(nothing_in_prefect(number) for number in range(count))


@pipeline
def headrace_flow(count: int) -> int:
    return sum(nothing_in_headrace(number) for number in range(count))
