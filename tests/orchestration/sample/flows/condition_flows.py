"""Pipelines with conditions, branches and loops."""

import time

import condition_steps as steps
import sample_steps

from headrace import pipeline


@pipeline
def conditions(cases: list[tuple[str, list[str]]]) -> str:
    before = {name: steps.step.submit(name, "bad" in name) for name in ("a", "b", "bad", "bad2")}
    for number, (run_if, names) in enumerate(cases):
        task = steps.after.with_options(run_if=run_if)
        task.submit(f"{number}", [before[name] for name in names])
    return "through"


@pipeline
def rescued(fail: bool = True) -> str:
    work = steps.work.submit(fail)
    helped = steps.call_for_help.submit(work)
    steps.after.submit("help", [helped]).wait()
    return helped.result()


@pipeline
def tidied(fail: bool = True) -> str:
    work = steps.work.submit(fail)
    steps.tidy_up.submit(given=work)
    return work.result()


@pipeline
def tidied_by_hand(fail: bool = True) -> str:
    try:
        return steps.work(fail)
    finally:
        steps.tidy_up()


@pipeline
def waits_in_vain(fail: bool = True) -> str:
    work = steps.work.submit(fail)
    steps.after.submit("one", [work])
    steps.after.submit("two", ["x"], wait_for=[work])
    return "through"


@pipeline
def asks_in_vain(fail: bool = True) -> str:
    work = steps.work.submit(fail)
    return steps.after("one", [work])


@pipeline
def branches(branch: str, fail: bool = False) -> str:
    chosen = steps.choose(branch)
    way = steps.go_left(wait_for=[chosen]) if chosen == "left" else steps.go_right()
    return steps.finish_way(way, fail)


@pipeline
def loop(items: list[int], bad: list[int] = []) -> list[int]:  # noqa: B006
    futures = steps.limited.map(items, bad=[bad] * len(items))
    return [future.result() for future in futures]


@pipeline
def connecting(errors: list[str]) -> int:
    return steps.connect(errors)


@pipeline
def unconvertible() -> str:
    steps.after.submit("set", [print])
    return "through"


@pipeline
def long_one(seconds: float = 600, tidy: float = 0) -> None:
    work = sample_steps.sleep_long.submit(seconds)
    steps.tidy_up.submit(given=work, seconds=tidy)
    steps.after.submit("never", [work])
    work.result()


@pipeline
def long_one_by_hand(seconds: float = 600, tidy: float = 1) -> None:
    try:
        sample_steps.sleep_long(seconds)
    finally:
        steps.tidy_up(seconds=tidy)


@pipeline
def waiting_to_retry() -> None:
    steps.patient.submit().result()


@pipeline
def slow(in_task: bool = True) -> None:
    if in_task:
        work = sample_steps.sleep_long.submit(600)
        steps.tidy_up.submit(given=work)
        work.result()
    else:
        time.sleep(600)
