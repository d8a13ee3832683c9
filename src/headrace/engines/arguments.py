"""Give a function its arguments back, with the types that its annotations name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from headrace.engines.spec import untag_tables
from headrace.exceptions import ArgumentError
from headrace.tables import TableRef


def decode_arguments(
    task: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Turn JSON values into what a function's annotations ask for.

    Args:
        task: Name of the task, for error texts.
        function: The task's function.
        arguments: Values by parameter name, encoded with `encode_arguments`.

    Returns:
        Arguments for the call. Where there is no annotation, JSON values and table references.

    Raises:
        ArgumentError: A value doesn't fit, or the function has no such parameter.
    """
    parameters = inspect.signature(function).parameters
    free = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    hints = _hints(function)
    decoded = {}
    for name, value in arguments.items():
        if name not in parameters and not free:
            known = ", ".join(parameters) or "none"
            raise ArgumentError(
                task=task, argument=name, reason=f"The function's parameters: {known}."
            )
        decoded[name] = _decode(task, name, untag_tables(value), hints.get(name, Any))
    return decoded


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        # A name that is imported for type checkers only; the values pass as they are.
        return {}


def _decode(task: str, name: str, value: Any, hint: Any) -> Any:
    if hint is Any or (isinstance(value, TableRef) and hint is TableRef):
        return value
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"Its annotation is {_hint_name(hint)}, and {first['msg']}: {value!r:.200}."
        raise ArgumentError(task=task, argument=name, reason=reason) from error


def _hint_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")
