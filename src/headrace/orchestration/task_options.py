"""Checks what a task's decorator was told, where the task is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headrace.exceptions import TaskDefinitionError, closest
from headrace.ledger.records import RUN_IFS


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that can't be meant.

    Args:
        function: The task's function.
        options: headrace's own options, as they were given.

    Raises:
        TaskDefinitionError: One of them can't be meant.
    """
    name = function.__name__
    _check_key(function, options.get("key"))
    if options.get("run_if", RUN_IFS[0]) not in RUN_IFS:
        given = options["run_if"]
        near = closest(str(given), RUN_IFS)
        raise TaskDefinitionError(
            task=name,
            problem=f"has run_if={given!r}, which is no condition",
            found=f"Conditions: {', '.join(RUN_IFS)}.",
            fix=f'run_if="{near or "all_done"}"',
        )
    most = options.get("concurrency")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise TaskDefinitionError(
            task=name,
            problem=f"has concurrency={most!r}",
            found="It is how many of the task's attempts run at once: 1, 2, 3, ...",
            fix="concurrency=2, or leave it out",
        )
    for option in ("retry_on", "no_retry_on"):
        _check_errors(name, option, options.get(option, ()))


def error_kinds(given: Any) -> tuple[type[BaseException] | str, ...]:
    """One error or several, as a tuple."""
    return (given,) if isinstance(given, str | type) else tuple(given or ())


def _check_errors(task: str, option: str, given: Any) -> None:
    try:
        kinds = error_kinds(given)
    except TypeError:
        kinds = (given,)
    for kind in kinds:
        is_class = isinstance(kind, type) and issubclass(kind, BaseException)
        if not is_class and not (isinstance(kind, str) and kind):
            raise TaskDefinitionError(
                task=task,
                problem=f"has {option}={given!r}",
                found="It names classes of errors, or is a list of such names.",
                fix=f'{option}=[ConnectionError, "requests.exceptions.HTTPError"]',
            )


def _check_key(function: Callable[..., Any], key: object) -> None:
    names = list(inspect.signature(function).parameters)
    if isinstance(key, str) and key not in names:
        raise TaskDefinitionError(
            task=function.__name__,
            problem=f"has key={key!r}, which is not one of its parameters",
            found=f"Parameters: {', '.join(names) or 'none'}.",
            fix="name one of them, or give a function of all",
        )
