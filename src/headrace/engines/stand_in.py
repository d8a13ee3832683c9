"""Light stand-ins for the decorators, used where a task's module is imported to run one task.

The real ones load Prefect, which costs about a second; an attempt needs the functions only.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from headrace.exceptions import TaskDefinitionError

_DECORATORS: Final = ("pipeline", "python_task", "ray_task", "spark_task")


class StandIn:
    """A decorated function that can be called, and nothing else.

    Attributes:
        function: The user's function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self

    def with_options(self, **_options: Any) -> StandIn:
        """The same: options matter in the flow's process only."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TaskDefinitionError(
            task=self.function.__qualname__,
            problem=f"was used with `.{name}` inside a task's process",
            found="A task can't start tasks; only a pipeline can.",
            fix=f"call it as a function: {self.function.__name__}(...)",
        )


def decorate(function: Callable[..., Any] | None = None, /, **_options: Any) -> Any:
    """Stand in for a decorator of headrace, with or without options."""
    return StandIn if function is None else StandIn(function)


def install_stand_ins() -> None:
    """From now on, `from headrace import python_task` gives a stand-in in this process."""
    # Looked up by name: an import would tie this layer to all that `headrace` offers.
    package = importlib.import_module("headrace")
    for name in _DECORATORS:
        setattr(package, name, decorate)
