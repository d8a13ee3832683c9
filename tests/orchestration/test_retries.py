"""When a task is tried again: which errors, and after how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.tasks import exponential_backoff

from headrace import python_task
from headrace.exceptions import (
    MemoryLimitError,
    TaskCancelledError,
    TaskTimeoutError,
    UserError,
)
from headrace.orchestration.retries import is_retryable, next_delay


@given(
    delay=st.floats(0.1, 3600),
    jitter=st.floats(0.01, 1.0),
    tries=st.integers(1, 20),
)
def test_a_jittered_delay_stays_near_the_one_that_was_asked_for(delay, jitter, tries):
    found = next_delay(delay, tries, jitter)
    assert delay * (1 - jitter) - 1e-6 <= found <= delay * (1 + jitter) + 1e-6


def test_two_jittered_delays_differ():
    assert len({next_delay(60.0, 1, 0.5) for _ in range(20)}) > 1


def test_a_backoff_of_prefects_grows_and_its_last_delay_is_repeated():
    @python_task(retries=5, retry_delay_seconds=exponential_backoff(backoff_factor=2))
    def fetch() -> None: ...

    delays = [next_delay(fetch.settings.retry_delays, tries) for tries in range(1, 8)]
    assert delays == [2, 4, 8, 16, 32, 32, 32]


def crash(kind, **values):
    return kind(task="t", how="ended", log_path="", tail="", **values)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (UserError(message="wrong"), False),
        (crash(TaskCancelledError), False),
        (crash(TaskTimeoutError, timeout_s=1.0), True),
        (crash(MemoryLimitError, profile="p", limit_mib=1, used_mib=2, largest="x"), True),
    ],
)
def test_wrong_input_and_a_cancel_are_final_and_what_crashed_is_tried_again(error, again):
    assert is_retryable(error) is again
    assert is_retryable(error, no_retry_on=("TaskCrashedError",)) is False
    assert is_retryable(error, retry_on=("ConnectionError",)) is False
