"""`headrace triggers`: what starts pipelines, how far it has come, and a hand on the switch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.ledger.firing_records import TriggerRecord
    from headrace.ledger.store import Ledger
    from headrace.orchestration.pipeline import Pipeline
    from headrace.orchestration.project import Project

app = typer.Typer(
    help="List what starts pipelines; pause, resume, fire, show.", no_args_is_help=True
)

PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline.")]
TriggerArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TRIGGER]", help="Name of the trigger, or its beginning; else all."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the next ten firings and start nothing.")
]

NEXT = 10


@app.command("list")
def list_triggers(
    *, dry_run: DryRunOption = False, env: EnvOption = None, json: JsonOption = False
) -> None:
    """List the triggers of the project's pipelines, and those that were served once."""
    from headrace.cli.output import print_json, print_table

    project, pipelines = _load(env)
    if dry_run:
        print_next(project, pipelines, json=json)
        return
    with project.open_ledger() as ledger:
        rows = _rows(ledger, pipelines)
    if json:
        print_json(rows)
        return
    print_table(
        ("pipeline", "trigger", "rule", "state", "last fired", "next", "problem"),
        (
            (
                row["pipeline"],
                row["trigger"],
                row["rule"],
                row["state"],
                _when(row["fired_at"]),
                _when(row["next"]),
                row["problem"],
            )
            for row in rows
        ),
    )


@app.command("show")
def show(
    pipeline: PipelineArgument,
    trigger: TriggerArgument = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many firings.")] = 20,
    dry_run: DryRunOption = False,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Show how far a pipeline's triggers have come, and what they fired."""
    from headrace.cli.output import print_json, print_line, print_table

    project, pipelines = _load(env)
    if dry_run:
        chosen = {name: found for name, found in pipelines.items() if name == pipeline}
        _check_pipeline(pipeline, pipelines)
        print_next(project, chosen, json=json, only=trigger)
        return
    with project.open_ledger() as ledger:
        records = _find(ledger, pipeline, trigger)
        name = records[0].name if trigger else None
        firings = ledger.list_firings(pipeline, name, limit=limit)
    if json:
        print_json(
            {
                "triggers": [record.model_dump(mode="json") for record in records],
                "firings": [firing.model_dump(mode="json") for firing in firings],
            }
        )
        return
    for record in records:
        print_line(f"{record.name}  {record.rule}  {_state(record)}", style="bold")
        print_line(f"  cursor {record.cursor}")
        if record.problem:
            print_line(f"  problem: {record.problem}", style="red")
    print_table(
        ("trigger", "key", "decision", "run", "decided", "why"),
        (
            (f.trigger, f.key, f.decision, f.run_id, _when(f.created_at.isoformat()), f.reason)
            for f in firings
        ),
    )


@app.command("pause")
def pause(
    pipeline: PipelineArgument, trigger: TriggerArgument = None, *, env: EnvOption = None
) -> None:
    """Pause triggers, also on Prefect's page; runs that are at work go on."""
    _switch(pipeline, trigger, env, paused=True)


@app.command("resume")
def resume(
    pipeline: PipelineArgument, trigger: TriggerArgument = None, *, env: EnvOption = None
) -> None:
    """Let triggers go on; the times of their pause are passed over."""
    _switch(pipeline, trigger, env, paused=False)


@app.command("fire")
def fire(
    pipeline: PipelineArgument,
    trigger: TriggerArgument = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the run's parameters and make none.")
    ] = False,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Make a run now, as if the trigger had fired; what serves starts it.

    A table or file trigger hands over what is new, whatever its quiet time and gap; a run of the
    same versions or files does not come a second time.
    """
    from headrace.cli.output import print_json, print_line
    from headrace.orchestration.triggers.by_hand import fire_by_hand, propose_by_hand

    project, pipelines = _load(env)
    _check_pipeline(pipeline, pipelines)
    with project.open_ledger() as ledger:
        proposal, record = propose_by_hand(project, ledger, pipelines[pipeline], trigger)
        [request] = proposal.firings
        parameters = request.run.parameters if request.run else {}
        if dry_run:
            print_json({"key": request.key, "parameters": parameters})
            return
        run_id = fire_by_hand(ledger, record, proposal)
    if json:
        print_json({"run": run_id, "key": request.key, "parameters": parameters})
        return
    print_line(f"Run {run_id} waits; `headrace serve` starts it.")


def print_next(
    project: Project,
    pipelines: dict[str, Pipeline[Any, Any]],
    *,
    json: bool,
    only: str | None = None,
) -> None:
    """Print the next ten firings of schedules, and what the other triggers wait for."""
    from headrace.cli.output import print_json, print_line, print_table
    from headrace.orchestration.triggers.preview import next_firings

    with project.open_ledger() as ledger:
        times, waiting = next_firings(project, ledger, pipelines, count=NEXT, only=only)
    if json:
        print_json({"next": times, "waiting": waiting})
        return
    print_table(
        ("time", "pipeline", "trigger", "parameters"),
        ((_when(t["time"]), t["pipeline"], t["trigger"], t["parameters"]) for t in times),
    )
    if waiting:
        print_line("")
        print_table(
            ("pipeline", "trigger", "waits for", "now"),
            ((w["pipeline"], w["trigger"], w["rule"], w["now"]) for w in waiting),
        )


def _load(env: str | None) -> tuple[Project, dict[str, Pipeline[Any, Any]]]:
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.triggers.find import find_pipelines

    with use_options(RunOptions(env=env)):
        project = load_project()
        return project, find_pipelines([], root=project.root)


def _rows(ledger: Ledger, pipelines: dict[str, Pipeline[Any, Any]]) -> list[dict[str, Any]]:
    from headrace.triggers.model import Cron, Interval
    from headrace.triggers.schedule import next_tick

    records = {(record.pipeline, record.name): record for record in ledger.list_triggers()}
    rows = []
    for name, pipeline in pipelines.items():
        for trigger in pipeline.policy.triggers:
            record = records.pop((name, trigger.name), None)
            paused = record is not None and record.is_paused
            coming = None
            if isinstance(trigger, Cron | Interval) and not paused:
                found = next_tick(trigger, datetime.now(UTC))
                coming = found.isoformat() if found else None
            rows.append(_row(name, trigger.name, trigger.rule, record, coming))
    rows += [
        _row(record.pipeline, record.name, record.rule, record, None, gone=record.kind != "manual")
        for record in records.values()
    ]
    return rows


def _row(
    pipeline: str,
    trigger: str,
    rule: str,
    record: TriggerRecord | None,
    coming: str | None,
    *,
    gone: bool = False,
) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "trigger": trigger,
        "rule": rule,
        "state": "no longer in the code" if gone else _state(record),
        "fired_at": record.fired_at.isoformat() if record and record.fired_at else None,
        "next": coming,
        "problem": record.problem if record else None,
    }


def _state(record: TriggerRecord | None) -> str:
    if record is None:
        return "not served yet"
    if record.paused:
        return f"paused by {record.paused_by}"
    return "paused in Prefect" if record.paused_in_prefect else "active"


def _find(ledger: Ledger, pipeline: str, trigger: str | None) -> list[TriggerRecord]:
    from headrace.exceptions import TriggerNotFoundError

    records = ledger.list_triggers()
    own = [record for record in records if record.pipeline == pipeline]
    if not own:
        raise TriggerNotFoundError(
            name=pipeline, defined=sorted({record.pipeline for record in records})
        )
    if trigger is None:
        return own
    exact = [record for record in own if record.name == trigger]
    fitting = exact or [record for record in own if record.name.startswith(trigger)]
    if len(fitting) != 1:
        raise TriggerNotFoundError(
            name=f"{pipeline} {trigger}", defined=[record.name for record in own]
        )
    return fitting


def _check_pipeline(name: str, pipelines: dict[str, Pipeline[Any, Any]]) -> None:
    from headrace.exceptions import TriggerNotFoundError

    if name not in pipelines:
        raise TriggerNotFoundError(name=name, defined=sorted(pipelines))


def _switch(pipeline: str, trigger: str | None, env: str | None, *, paused: bool) -> None:
    import getpass

    from headrace.cli.output import print_line
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.triggers.by_hand import switch_in_prefect

    with use_options(RunOptions(env=env)):
        project = load_project()
    with project.open_ledger() as ledger:
        records = _find(ledger, pipeline, trigger)
        told = switch_in_prefect(project, pipeline, records, active=not paused)
        for record in records:
            ledger.pause_trigger(record, paused=paused, user=getpass.getuser())
            if not paused and told and record.paused_in_prefect:
                ledger.note_pause_in_prefect(
                    record, paused=False, now=datetime.now(UTC).isoformat()
                )
            print_line(f"{pipeline}: {record.name} {'is paused' if paused else 'goes on'}.")
    if not told:
        print_line("Prefect does not answer: its page does not show it.", style="yellow")


def _when(moment: str | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
