"""Checks what a pipeline was told about its triggers, when it is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from headrace.exceptions import TriggerDefinitionError, closest
from headrace.profiles.notice_blocks import check_name
from headrace.triggers.model import CatchUp, Trigger, TriggerPolicy, WhenBusy, default_name
from headrace.triggers.templates import check_templates

OPTIONS = tuple(field.name for field in fields(TriggerPolicy))
"""Names of the options of `@pipeline` that are about triggers."""


def make_policy(function: Callable[..., Any], name: str, options: dict[str, Any]) -> TriggerPolicy:
    """The policy of a pipeline, from the options of its decorator.

    Args:
        function: The pipeline's function.
        name: Its name.
        options: Those of `OPTIONS` that were given.

    Raises:
        TriggerDefinitionError: One of them is wrong, or a trigger can't start this function.
    """
    given = dict(options)
    triggers = _named(name, given.pop("triggers", ()) or ())
    _check_options(name, given)
    for trigger in triggers:
        _check_parameters(function, name, trigger)
        check_templates(trigger, pipeline=name)
    if "notify" in given:
        given["notify"] = tuple(given["notify"])
    return TriggerPolicy(triggers=triggers, **given)


def _named(pipeline: str, triggers: Sequence[Trigger]) -> tuple[Trigger, ...]:
    named: dict[str, Trigger] = {}
    if isinstance(triggers, Trigger):
        triggers = [triggers]
    for trigger in triggers:
        if not isinstance(trigger, Trigger):
            raise _error(
                pipeline,
                f"triggers has {trigger!r}, which is no trigger",
                "Triggers are cron, interval, on_table, on_files, continuous, on_pipeline.",
                'triggers=[cron("0 6 * * *")]',
            )
        name = trigger.name or default_name(trigger)
        if name in named:
            raise _error(
                pipeline,
                f"two triggers have the name {name!r}",
                "The ledger keeps the cursor of each under its name.",
                'give one of them name="..."',
            )
        named[name] = replace(trigger, name=name)
    continuous = [name for name, trigger in named.items() if trigger.kind == "continuous"]
    if continuous and len(named) > 1:
        raise _error(
            pipeline,
            "continuous() stands beside other triggers",
            "It keeps one run at work all the time; another trigger's runs would never start.",
            "leave continuous() alone, or make it interval(...)",
        )
    return tuple(named.values())


def _check_options(pipeline: str, given: dict[str, Any]) -> None:
    most = given.get("max_concurrent", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise _error(
            pipeline,
            f"max_concurrent={most!r} is no number above 0",
            "So many of its runs may be at work at once.",
            "max_concurrent=1",
        )
    for key, allowed in (("when_busy", get_args(WhenBusy)), ("catch_up", get_args(CatchUp))):
        value = given.get(key, allowed[0])
        if value not in allowed:
            near = closest(str(value), allowed, cutoff=0) or allowed[0]
            found = f"It is one of {', '.join(allowed)}."
            raise _error(pipeline, f"{key}={value!r} is not known", found, f'{key}="{near}"')
    _check_notify(pipeline, given.get("notify", ()))
    long_s = given.get("long_after_s")
    if long_s is not None and (isinstance(long_s, bool) or not float(long_s) > 0):
        raise _error(
            pipeline,
            f"long_after_s={long_s!r} is no number of seconds above 0",
            "A run that takes longer is told of.",
            "long_after_s=3600",
        )


def _check_notify(pipeline: str, notify: Any) -> None:
    found = "A block is named by its type and its name"
    is_list = isinstance(notify, Iterable) and not isinstance(notify, str)
    try:
        if is_list:
            for name in notify:
                check_name(str(name))
            return
    except ValueError as error:
        found = str(error)
    raise _error(
        pipeline,
        f"notify={notify!r} is no list of Prefect blocks",
        f"{found}.",
        'notify=["slack-webhook/data-team"]',
    )


def _check_parameters(function: Callable[..., Any], pipeline: str, trigger: Trigger) -> None:
    known = inspect.signature(function).parameters
    given = trigger.parameters
    for name in given:
        if name not in known:
            near = closest(name, known)
            raise _error(
                pipeline,
                f"trigger {trigger.name} gives the parameter {name!r}, which it doesn't have",
                f"Parameters: {', '.join(known) or 'none'}.",
                f"use {near}" if near else "leave it out",
            )
    missing = [
        name
        for name, parameter in known.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in given
    ]
    if missing:
        raise _error(
            pipeline,
            f"trigger {trigger.name} gives no value for the parameter {missing[0]!r}",
            "A run that starts by itself has nobody to ask.",
            f'parameters={{"{missing[0]}": ...}} in the trigger, or a default in the function',
        )


def _error(pipeline: str, problem: str, found: str, fix: str) -> TriggerDefinitionError:
    return TriggerDefinitionError(
        trigger=f"Pipeline {pipeline}", problem=problem, found=found, fix=fix
    )
