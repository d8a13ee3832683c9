"""What a single run changes: profiles per task, and addresses from environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.exceptions import ProfileError
from headrace.profiles.merge import Settings
from headrace.profiles.models import Origin
from headrace.profiles.toml_file import Key

TASK_PROFILES: Final = "HEADRACE_PROFILES"

VARIABLES: Final[Mapping[str, Key]] = {
    "HEADRACE_LAKE": ("lake",),
    "HEADRACE_LEDGER_URL": ("ledger_url",),
    "HEADRACE_MLFLOW_TRACKING_URI": ("mlflow", "tracking_uri"),
    "HEADRACE_MLFLOW_ARTIFACT_ROOT": ("mlflow", "artifact_root"),
    "HEADRACE_PREFECT_API_URL": ("prefect", "api_url"),
    "HEADRACE_PREFECT_PORT": ("prefect", "port"),
    "HEADRACE_STORAGE_ENDPOINT": ("storage", "endpoint"),
    "HEADRACE_STORAGE_ACCESS_KEY": ("storage", "access_key"),
    "HEADRACE_STORAGE_SECRET_KEY": ("storage", "secret_key"),
    "HEADRACE_STORAGE_SESSION_TOKEN": ("storage", "session_token"),
    "HEADRACE_SPARK_ADDRESS": ("defaults", "spark", "address"),
    "HEADRACE_RAY_ADDRESS": ("defaults", "ray", "address"),
    "HEADRACE_RAY_TOKEN": ("defaults", "ray", "token"),
}
# These come as references, like secrets in the file: their values never stand among the settings.
_SECRETS: Final = ("access_key", "secret_key", "session_token", "address", "token")


def parse_task_profiles(parts: Iterable[str], *, source: str) -> dict[str, str]:
    """Read `TASK=PROFILE` pairs.

    Args:
        parts: For example `["build_features=etl-large"]`; one part may hold several, by commas.
        source: Where they come from, for the error text (`--profile`, HEADRACE_PROFILES).

    Raises:
        ProfileError: A part is not `TASK=PROFILE`.

    Example:
        >>> parse_task_profiles(["load=tiny,score=train"], source="--profile")
        {'load': 'tiny', 'score': 'train'}
    """
    pairs: dict[str, str] = {}
    for part in (piece.strip() for text in parts for piece in text.split(",")):
        if not part:
            continue
        task, _, profile = (side.strip() for side in part.partition("="))
        if not task or not profile:
            raise ProfileError(
                origin=source,
                key="",
                problem=f"{part!r} is not TASK=PROFILE",
                found="A profile is given to one task by both names.",
                fix=f"write for example {source}{'=' if source.isupper() else ' '}load_flights=etl",
            )
        pairs[task] = profile
    return pairs


def task_profiles(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The profiles per task for this run: HEADRACE_PROFILES, and `given` over it."""
    named = os.environ.get(TASK_PROFILES, "")
    return {**parse_task_profiles([named], source=TASK_PROFILES), **(given or {})}


def _value(variable: str, key: Key, text: str) -> object:
    if key[-1] in _SECRETS:
        return {"env": variable}
    return int(text) if key[-1] == "port" and text.isdecimal() else text


def apply_overrides(settings: Settings, overrides: Mapping[str, object]) -> None:
    """Lay environment variables, then `overrides` (by dotted key), over the file's values."""
    for variable, key in VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            settings.put(key, _value(variable, key, text), Origin(source=variable))
    for dotted, value in overrides.items():
        settings.put(tuple(dotted.split(".")), value, Origin(source="override"))
