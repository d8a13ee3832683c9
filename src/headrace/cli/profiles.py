"""`headrace profiles`: which compute profiles there are, and where each value came from."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options import EnvOption, JsonOption, TaskProfilesOption, complete_profile
from headrace.cli.output import print_json, print_line, print_table
from headrace.profiles.explain import Value, explain_environment, explain_profile
from headrace.profiles.load import load_environment
from headrace.profiles.models import Environment
from headrace.profiles.overrides import parse_task_profiles
from headrace.profiles.units import format_memory

app = typer.Typer(help="List compute profiles, explain one, advise on them.", no_args_is_help=True)


@app.command("list")
def list_profiles(*, env: EnvOption = None, json: JsonOption = False) -> None:
    """List the environment's profiles."""
    environment = load_environment(env, resolve_secrets=False)
    profiles = sorted(environment.profiles.values(), key=lambda profile: profile.name)
    if json:
        print_json([profile.model_dump(mode="json") for profile in profiles])
        return
    print_line(f"{environment.name}: {environment.file}", style="dim")
    print_table(
        ("profile", "engine", "where", "cores", "memory", "workers", "gpus", "reuse", "price/h"),
        (
            (
                profile.name,
                profile.engine,
                profile.where,
                profile.cores,
                format_memory(profile.memory_mib),
                profile.workers,
                f"{profile.gpus:g}",
                profile.reuse,
                f"{profile.price_per_hour:g}",
            )
            for profile in profiles
        ),
        right=("cores", "memory", "workers", "gpus", "price/h"),
    )


@app.command("show")
def show_profile(
    name: Annotated[
        str, typer.Argument(help="Profile to explain.", autocompletion=complete_profile)
    ],
    *,
    env: EnvOption = None,
    profile: TaskProfilesOption = None,
    json: JsonOption = False,
) -> None:
    """Print each value of a profile, and of its environment, with where it came from."""
    given = parse_task_profiles(profile or [], source="--profile")
    environment = load_environment(env, profiles=given, resolve_secrets=False)
    own = explain_profile(environment, environment.profile(name))
    shared = explain_environment(environment)
    if json:
        print_json({"profile": name, "environment": environment.name, **_json(own, shared)})
        return
    _print(environment, name, own, shared)


@app.command("advise")
def advise(
    *,
    since: Annotated[
        str, typer.Option("--since", help="A date (2026-08-01), or an age such as 7d or 12h.")
    ] = "30d",
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Compare what attempts used with what their profiles reserve, and say what to change."""
    from headrace.cli.usage import parse_since
    from headrace.ledger.store import open_ledger
    from headrace.profiles.advice import Used, advise_profile
    from headrace.profiles.project import find_project, state_dir

    state_dir(find_project())
    environment = load_environment(env, resolve_secrets=False)
    with open_ledger(environment.ledger_url) as ledger:
        rows = ledger.usage_rows(since=parse_since(since))
    used: dict[str, list[Used]] = {}
    for row in rows:
        if row.environment == environment.name:
            used.setdefault(row.profile, []).append(
                Used(
                    task=row.task,
                    wall_s=row.wall_s,
                    cpu_s=row.cpu_s,
                    peak_memory_mib=row.peak_memory_mib,
                    spilled_bytes=row.spilled_bytes,
                    memory_mib=row.memory_mib,
                )
            )
    found = [
        advice
        for name, profile in sorted(environment.profiles.items())
        for advice in advise_profile(profile, used.get(name, []))
    ]
    if json:
        print_json([vars(advice) for advice in found])
        return
    print_table(("profile", "found", "change"), ((a.profile, a.found, a.change) for a in found))
    print_line(f"{len(rows)} attempts since {since}; attempts under 5 s are left out.", style="dim")


def _json(own: list[Value], shared: list[Value]) -> dict[str, list[dict[str, str]]]:
    return {
        "values": [value._asdict() for value in own],
        "environment_values": [value._asdict() for value in shared],
    }


def _print(environment: Environment, name: str, own: list[Value], shared: list[Value]) -> None:
    print_line(f"Profile {name}", style="bold")
    print_table(("key", "value", "from"), own)
    print_line(f"\nEnvironment {environment.name}", style="bold")
    print_table(("key", "value", "from"), shared)
