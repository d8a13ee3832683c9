"""`headrace advise`: is one process enough for a table, which engine, how many workers, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import EnvOption, JsonOption, complete_profile
from headrace.cli.tables import TableArgument, VersionOption, load_table

if TYPE_CHECKING:
    from headrace.ml.advice import Machine
    from headrace.profiles.models import Environment

app = typer.Typer()

GOALS = ("train", "tune", "score")


@app.command("advise")
def advise(
    table: TableArgument,
    *,
    goal: Annotated[
        str, typer.Option("--for", metavar="|".join(GOALS), help="What is to be done with it.")
    ] = "train",
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COLUMN", help="A model for each value of it. Repeatable."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Trials of a study, with --for tune.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="Profile to judge by; the one with the most memory if none.",
            autocompletion=complete_profile,
        ),
    ] = None,
    version: VersionOption = None,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Say whether one process is enough for a table, else which engine and how many workers.

    Only the table's log is read. The speeds are those that benchmarks/advice.py measured here, or
    else those that come with headrace.
    """
    from headrace.cli.output import print_json, print_line
    from headrace.ml.advice import advise_on
    from headrace.ml.advising import load_speeds, speeds_file, table_facts

    if goal not in GOALS:
        raise typer.BadParameter(f"write one of {', '.join(GOALS)}", param_hint="--for")
    environment, snapshot = load_table(table, env, version)
    names = by or []
    found = advise_on(
        table_facts(snapshot, snapshot.ref(table), by=names, columns=None),
        machine_of(environment, profile),
        load_speeds(speeds_file(environment.root)),
        goal=goal,  # type: ignore[arg-type]  # one of GOALS
        by=", ".join(names) or None,
        n_trials=trials,
    )
    if json:
        print_json(found.as_json())
        return
    head, *reasons = str(found).splitlines()
    print_line(head, style="bold")
    for reason in reasons:
        print_line(reason)


def machine_of(environment: Environment, name: str | None) -> Machine:
    """Cores and memory of a profile."""
    from headrace.ml.advice import Machine

    profiles = environment.profiles
    if name is None:
        name = max(profiles, key=lambda known: profiles[known].memory_mib, default="")
    found = environment.profile(name)
    return Machine(profile=name, cores=found.cores, memory_mib=float(found.memory_mib))
