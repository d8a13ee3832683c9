"""Whether and when a task is tried again: by class of error, after a wait that a cancel ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from prefect.logging import get_run_logger

from headrace.exceptions import (
    HeadraceError,
    TaskCancelledError,
    TaskFailedError,
    UserError,
    error_bases,
    full_name,
)

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from headrace.orchestration.tasks import EngineTask

ErrorKinds = tuple[type[BaseException] | str, ...]


def may_retry(task: EngineTask[Any, Any], task_run: Any, state: State[Any]) -> bool:
    """Prefect's `retry_condition_fn` of every task: decide, and wait for the delay.

    The delay is waited for here and not by Prefect, whose sleep no cancel can end.
    """
    error = state.data
    settings = task.settings
    if not is_retryable(error, settings.retry_on, settings.no_retry_on):
        return False
    if settings.retry_if is not None and not settings.retry_if(task, task_run, state):
        return False
    return _wait(task, task_run.run_count)


def is_retryable(error: object, retry_on: ErrorKinds = (), no_retry_on: ErrorKinds = ()) -> bool:
    """Whether another try may help.

    Wrong input would be wrong again, and what was cancelled shall not come back. Of the rest
    `retry_on` names what is tried again (everything when it is empty) and `no_retry_on` what is
    not; a class stands for those that derive from it too.

    Example:
        >>> error = TaskFailedError(
        ...     task="load", error_type="builtins.ConnectionResetError", error_message="reset",
        ...     error_bases=error_bases(ConnectionResetError), traceback="", log_path="",
        ...     retryable=True,
        ... )
        >>> is_retryable(error, retry_on=(ConnectionError, "HTTPError"))
        True
        >>> is_retryable(error, no_retry_on=("ConnectionResetError",))
        False
    """
    if isinstance(error, UserError | TaskCancelledError):
        return False
    if isinstance(error, HeadraceError) and not getattr(error, "retryable", True):
        return False
    names = _names(error)
    if _is_one_of(names, no_retry_on):
        return False
    return not retry_on or _is_one_of(names, retry_on)


def _names(error: object) -> tuple[str, ...]:
    """Full names of an error's class and its bases, also when it was raised in another process."""
    if isinstance(error, TaskFailedError):
        return error.error_bases or (error.error_type,)
    return error_bases(type(error))


def _is_one_of(names: Iterable[str], kinds: ErrorKinds) -> bool:
    return any(_fits(name, kind) for kind in kinds for name in names)


def _fits(name: str, kind: type[BaseException] | str) -> bool:
    if isinstance(kind, str):
        return name == kind or name.endswith(f".{kind}")
    if kind.__module__ == "__main__":
        # A script's classes have the module's own name in the task's process.
        return name.endswith(f".{kind.__qualname__}")
    return name == full_name(kind)


def _wait(task: EngineTask[Any, Any], tries: int) -> bool:
    """Wait before the next try; False when the run was stopped meanwhile."""
    from headrace.orchestration.session import active_session

    session = active_session()
    if session is None:
        return True
    delay_s = next_delay(task.settings.retry_delays, tries, task.retry_jitter_factor)
    if delay_s:
        get_run_logger().info("trying %s again in %.0f s", task.name, delay_s)
    return not session.cancel.wait(delay_s) if delay_s else not session.cancel.is_set()


def next_delay(
    delays: float | Sequence[float] | None, tries: int, jitter: float | None = None
) -> float:
    """Seconds before the next try.

    Args:
        delays: One delay for all, or one per try, of which the last is repeated.
        tries: How many there have been.
        jitter: Prefect's `retry_jitter_factor`: how far the delay may be off, on average right.

    Example:
        >>> [next_delay([1, 10], tries) for tries in (1, 2, 3)]
        [1.0, 10.0, 10.0]
    """
    if not delays:
        return 0.0
    delay = float(delays[min(tries, len(delays)) - 1] if isinstance(delays, Sequence) else delays)
    if not jitter or delay <= 0:
        return delay
    from prefect.utilities.math import clamped_poisson_interval

    return clamped_poisson_interval(delay, clamping_factor=jitter)
