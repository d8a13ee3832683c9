"""From unchecked TOML values to a model; every error names the place, the key and what is right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from headrace.exceptions import ProfileError, UnknownKeyError, closest
from headrace.profiles.models import Origin, Written
from headrace.profiles.toml_file import Key
from headrace.profiles.units import UnitError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

AnyModel = TypeVar("AnyModel", bound=BaseModel)
OriginOf = Callable[[Key], Origin]

_KINDS: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "dict_type": "a table",
    "tuple_type": "a list",
}
_BOUNDS: Final = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
}


def toml_keys(model: type[BaseModel], *, hidden: Collection[str] = ()) -> dict[str, str]:
    """Field names by the key that TOML has for them, without the `hidden` fields."""
    return {
        written.key if (written := written_as(model, name)) else name: name
        for name in model.model_fields
        if name not in hidden
    }


def build(
    model: type[AnyModel],
    data: Mapping[str, Any],
    *,
    key: Key,
    origin: OriginOf,
    given: Mapping[str, Any] | None = None,
) -> AnyModel:
    """Check one table of the file.

    Args:
        model: What the table has to be.
        data: Its values, by TOML key.
        key: Where the table stands (`("profiles", "etl")`).
        origin: Origin of a key, given its path within the table.
        given: Field values that don't come from the file.

    Raises:
        UnknownKeyError: A key that the model doesn't have.
        ProfileError: A value that the model doesn't take.
    """
    given = given or {}
    fields = toml_keys(model, hidden=given)
    values: dict[str, Any] = dict(given)
    for name, value in data.items():
        if name not in fields:
            raise unknown_key(name, value, fields, key=key, origin=origin((name,)))
        values[fields[name]] = _parsed(model, fields[name], value, (*key, name), origin((name,)))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        details = _most_telling(error)
        spelled = {field: name for name, field in fields.items()}
        raise _invalid(details, spelled, data, key, origin) from error


def written_as(model: type[BaseModel], field: str) -> Written | None:
    """How a field is written in TOML, when not by its own name and type."""
    info = model.model_fields[field]
    # In `Timeout | None` pydantic leaves the marker on the inner type.
    inner = (part for arg in get_args(info.annotation) for part in get_args(arg))
    marks = (mark for mark in (*info.metadata, *inner) if isinstance(mark, Written))
    return next(marks, None)


def _parsed(model: type[BaseModel], field: str, value: object, key: Key, origin: Origin) -> object:
    written = written_as(model, field)
    if written is None:
        return value
    try:
        return written.parse(value)
    except UnitError as error:
        raise ProfileError(
            origin=str(origin),
            key=".".join(key),
            problem=error.problem,
            found=error.found,
            fix=f"{key[-1]} = {error.value}",
        ) from error


def unknown_key(
    name: str, value: object, known: Collection[str], *, key: Key, origin: Origin
) -> UnknownKeyError:
    """The error about a key that isn't among the `known` ones of the table at `key`."""
    # memory_mib or memory_gb are near to `memory` for a reader, though not by their letters.
    stem = name.rsplit("_", 1)[0]
    near = stem if stem in known else closest(name, known)
    if near is None:
        fix = "remove it"
    elif isinstance(value, dict):
        fix = f"[{'.'.join((*key, near))}]"
    else:
        fix = f"{near} = {show(value)}"
    return UnknownKeyError(
        origin=str(origin),
        key=".".join((*key, name)),
        problem="there is no such key",
        found=f"Known: {', '.join(sorted(known))}.",
        fix=fix,
        suggestion=near,
    )


def show(value: object) -> str:
    """Write a value as TOML would."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{name} = {show(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, str | bool | int | float):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _most_telling(error: ValidationError) -> ErrorDetails:
    """Of the errors of a union's branches, the one that got furthest."""
    return max(error.errors(include_url=False), key=lambda details: len(details["loc"]))


def _invalid(
    details: ErrorDetails,
    spelled: Mapping[str, str],
    data: Mapping[str, Any],
    key: Key,
    origin: OriginOf,
) -> ProfileError:
    path, inside = _path(details, spelled, data)
    problem, found, fix = _explain(details, path[-1] if path else "", inside)
    return ProfileError(
        origin=str(origin(path)), key=".".join((*key, *path)), problem=problem, found=found, fix=fix
    )


def _path(
    details: ErrorDetails, spelled: Mapping[str, str], data: Mapping[str, Any]
) -> tuple[Key, object]:
    """The key path of an error, without the names that pydantic adds for branches of a union."""
    path: Key = ()
    value: object = data
    for part in details["loc"]:
        name = spelled.get(str(part), str(part)) if not path else str(part)
        if isinstance(value, Mapping) and name in value:
            path, value = (*path, name), value[name]
    return path, value


def _explain(details: ErrorDetails, name: str, value: object) -> tuple[str, str, str]:
    """Problem, what is allowed, fix."""
    kind, context, shown = details["type"], details.get("ctx", {}), show(value)
    if kind in _KINDS:
        expected = _KINDS[kind]
        return f"{shown} is not {expected}", f"Expected: {expected}.", _retyped(kind, name, value)
    if kind in _BOUNDS:
        field, words = _BOUNDS[kind]
        bound = f"{context[field]:g}"
        return f"{shown} is out of range", f"Allowed: {words} {bound}.", f"{name} = {bound}"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        near = closest(str(value), allowed, cutoff=0.0)
        found = f"Allowed: {', '.join(allowed)}."
        return f"{shown} is not allowed", found, f'{name} = "{near}"'
    if kind == "value_error":
        return str(context["error"]), "", "change one of the two"
    return details["msg"], "", f"change {name}"


def _retyped(kind: str, name: str, value: object) -> str:
    """The same value in the type that is wanted, or an example of that type."""
    text = str(value).strip().lower()
    example = {"bool_type": "true", "string_type": '"text"', "dict_type": "{}"}.get(kind, "1")
    if kind == "string_type" and isinstance(value, bool | int | float):
        example = f'"{show(value)}"'
    elif kind == "bool_type" and text in ("true", "false"):
        example = text
    elif kind in ("int_type", "float_type") and re.fullmatch(r"\d+(\.\d+)?", text):
        example = text.split(".")[0] if kind == "int_type" else text
    elif kind == "tuple_type":
        example = f"[{show(value)}]"
    return f"{name} = {example}"
