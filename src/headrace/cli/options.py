"""Options that several commands share, and what the shell completes for them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.exceptions import HeadraceError


def complete_environment(incomplete: str) -> list[str]:
    """Names of the project's environments."""
    from headrace.profiles.load import environment_names
    from headrace.profiles.project import find_project

    try:
        names = environment_names(find_project())
    except HeadraceError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_profile(incomplete: str) -> list[str]:
    """Names of the default environment's profiles."""
    from headrace.profiles.load import load_environment

    try:
        names = load_environment(resolve_secrets=False).profiles
    except HeadraceError:
        return []
    return [name for name in names if name.startswith(incomplete)]


EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        "-e",
        help="Environment: infra/profiles/ENV.toml. Default: HEADRACE_ENV, else local.",
        autocompletion=complete_environment,
    ),
]

TaskProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", metavar="TASK=PROFILE", help="Run this task on this profile. Repeatable."
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
