"""The error of the user's own code inside what Ray wraps around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def own_error(error: BaseException) -> BaseException:
    """What the user's code raised, or the error itself when Ray raised it on its own account.

    Ray Data wraps what a function of `map_batches` raises as `UserCodeException`, and Ray what a
    worker raises as `RayTaskError`; the error that says what is wrong is the innermost.
    """
    seen = error
    while _is_wrapper(seen):
        inner = getattr(seen, "cause", None) or seen.__cause__
        if not isinstance(inner, BaseException):
            return error
        seen = inner
    return seen


@contextmanager
def raising_own_error() -> Iterator[None]:
    """Let an error leave the block as the user's own, without Ray's wrappers."""
    try:
        yield
    except Exception as error:
        own = own_error(error)
        if own is error:
            raise
        raise own from None


def _is_wrapper(error: BaseException) -> bool:
    # By name: the process of a Spark task has no Ray to import.
    kinds = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("ray.")}
    return bool(kinds & {"RayTaskError", "UserCodeException"})
