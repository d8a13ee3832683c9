"""`headrace repair` and `headrace cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import EnvOption, JsonOption, TaskProfilesOption

if TYPE_CHECKING:
    from headrace.orchestration.repair import PlannedRepair

app = typer.Typer(add_completion=False)
cancel_app = typer.Typer(add_completion=False)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of the run, the beginning of one, or `last`.")
]


@app.command("repair")
def repair(  # noqa: PLR0913 - each is an option of the command
    run: RunArgument = "last",
    *,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", help="Run this task again instead of the unsuccessful ones."),
    ] = None,
    with_dependents: Annotated[
        bool, typer.Option("--with-dependents", help="With --task: also what depends on it.")
    ] = False,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="K=V", help="Change a parameter. Repeatable."),
    ] = None,
    env: EnvOption = None,
    profile: TaskProfilesOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run and what is reused, and why.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what the tasks print.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run again what did not succeed in a run and what depends on it; reuse everything else.

    Reused tasks keep the table versions that they made, even if the tables have moved on.
    """
    from headrace.cli.run import parse_parameters, run_here
    from headrace.ledger.records import RepairRequest
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.repair import claim_repair, prepare_repair
    from headrace.profiles.overrides import parse_task_profiles

    profiles = parse_task_profiles(profile or [], source="--profile")
    with use_options(RunOptions(env=env, task_profiles=profiles)):
        project = load_project()
        request = RepairRequest(
            tasks=tuple(task or ()),
            with_dependents=with_dependents,
            parameters=parse_parameters(param or []),
            profiles=profiles,
        )
        planned = prepare_repair(project, run, request)
    if dry_run:
        _print_plan(planned, json=json)
        return
    run_here(
        planned.run.entrypoint,
        planned.parameters,
        RunOptions(env=env or planned.run.environment, root=project.root, task_profiles=profiles),
        verbose=verbose,
        inherited=planned.inherited,
        claim=lambda: claim_repair(project, planned),
    )


@cancel_app.command("cancel")
def cancel(
    run: RunArgument = "last",
    *,
    env: EnvOption = None,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Wait so many seconds for everything to be gone.")
    ] = 60,
) -> None:
    """End a run that goes on: every process that its tasks started is gone within seconds."""
    from headrace.cli.output import print_line
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project

    with use_options(RunOptions(env=env)):
        project = load_project()
    with project.open_ledger() as ledger:
        ledger.reap_expired()
        record = ledger.get_run(run)
        if not ledger.request_cancel(record.id):
            print_line(f"Run {record.id} has ended already: {record.state}.")
            return
        print_line(f"Run {record.id}: cancel requested.")
        idle = ledger.wait_until_idle(record.id, timeout_s=wait_s)
        state = ledger.get_run(record.id).state
    if idle:
        print_line(f"Run {record.id}: {state}.")
        return
    print_line(f"Run {record.id} is still ending after {wait_s:.0f} s.")
    raise typer.Exit(3)


def _print_plan(planned: PlannedRepair, *, json: bool) -> None:
    from headrace.cli.output import print_json, print_line, print_table

    decisions = planned.plan.decisions
    if json:
        print_json(
            {
                "run": planned.run.id,
                "repair": planned.after_seq + 1,
                "parameters": planned.parameters,
                "tasks": [
                    {"task": d.name, "action": d.action, "attempt": d.attempt_id, "why": d.why}
                    for d in decisions
                ],
            }
        )
        return
    print_line(f"Repair {planned.after_seq + 1} of run {planned.run.id} ({planned.run.pipeline})")
    print_table(
        ("task", "action", "from attempt", "why"),
        ((d.name, d.action, d.attempt_id, d.why) for d in decisions),
        right=("from attempt",),
    )
