"""`{{ trigger.FIELD }}` in the parameters of a trigger's runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.exceptions import TriggerDefinitionError, closest
from headrace.triggers.model import Trigger

_TEMPLATE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_FIELD = re.compile(r"trigger\.(\w+)")


def check_templates(trigger: Trigger, *, pipeline: str) -> None:
    """Refuse templates that name what the trigger doesn't have.

    Raises:
        TriggerDefinitionError: The text names the field and those that there are.
    """
    for text in _texts(trigger.parameters):
        for inner in _TEMPLATE.findall(text):
            match = _FIELD.fullmatch(inner)
            if match and match[1] in trigger.fields:
                continue
            near = closest(match[1] if match else inner, trigger.fields, cutoff=0) or "time"
            raise TriggerDefinitionError(
                trigger=f"Trigger {trigger.name} of {pipeline}",
                problem=f"a parameter has {{{{ {inner} }}}}, which the trigger doesn't fill in",
                found=f"It has {', '.join(f'trigger.{name}' for name in sorted(trigger.fields))}.",
                fix=f"{{{{ trigger.{near} }}}}",
            )


def fill_in(parameters: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with their templates filled in.

    A text that is nothing but one template becomes the value itself: a list stays a list.

    Args:
        parameters: As they were declared.
        facts: Values by field.

    Example:
        >>> fill_in({"files": "{{ trigger.files }}", "title": "at {{trigger.time}}"},
        ...         {"files": ["a.csv"], "time": "06:00"})
        {'files': ['a.csv'], 'title': 'at 06:00'}
    """
    return {name: _filled(value, facts) for name, value in parameters.items()}


def _filled(value: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(item, facts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, facts) for item in value]
    if not isinstance(value, str):
        return value
    whole = _TEMPLATE.fullmatch(value.strip())
    if whole and (match := _FIELD.fullmatch(whole[1])):
        return facts.get(match[1])

    def text(found: re.Match[str]) -> str:
        match = _FIELD.fullmatch(found[1])
        fact = facts.get(match[1]) if match else None
        return "" if fact is None else str(fact)

    return _TEMPLATE.sub(text, value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
