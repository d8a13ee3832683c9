"""Each value of an environment and where it came from, for people to read. Never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel, SecretStr

from headrace.profiles.check import show, toml_keys, written_as
from headrace.profiles.models import Environment, Origin, Profile
from headrace.profiles.secrets import mask_password

_DEFAULT = Origin(source="default")


class Value(NamedTuple):
    """One value.

    Attributes:
        key: Its key in TOML.
        text: What TOML would say.
        origin: File and line, `default`, an environment variable or an option.
    """

    key: str
    text: str
    origin: str


def explain_profile(environment: Environment, profile: Profile) -> list[Value]:
    """The values of one profile; keys of its tables (`env`, `spark_conf`) come one by one."""
    prefix = f"profiles.{profile.name}"
    return list(_values(environment, profile, prefix, hidden={"name"}))


def explain_environment(environment: Environment) -> list[Value]:
    """The values that all profiles of the environment share: addresses and storage."""
    own = {"name", "source", "root", "profiles", "task_profiles", "origins"}
    sections = {"mlflow", "prefect", "storage"}
    values = list(_values(environment, environment, "", hidden=own | sections))
    for section in sorted(sections):
        model = getattr(environment, section)
        inner = _values(environment, model, section, hidden={"expires_at"})
        values += [value._replace(key=f"{section}.{value.key}") for value in inner]
    values += [
        Value(f"--profile {task}", profile, "this run")
        for task, profile in environment.task_profiles.items()
    ]
    return values


def _values(
    environment: Environment, model: BaseModel, prefix: str, *, hidden: set[str]
) -> Iterator[Value]:
    for key, field in toml_keys(type(model), hidden=hidden).items():
        value = getattr(model, field)
        path = f"{prefix}.{key}" if prefix else key
        origin = environment.origins.get(path, _DEFAULT)
        if isinstance(value, dict) and value:
            for name, item in value.items():
                exact = environment.origins.get(f"{path}.{name}", origin)
                yield Value(f"{key}.{name}", _text(item), str(exact))
        elif value is None:
            yield Value(key, "-", str(origin))
        else:
            written = written_as(type(model), field)
            text = show(written.show(value)) if written else _text(value)
            yield Value(key, text, str(origin))


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return "(secret)"
    if isinstance(value, BaseModel):
        return f"({value})"
    return mask_password(show(value))
