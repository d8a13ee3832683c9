"""`headrace runs`: what ran, what came of it, and what it printed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.ledger.records import AttemptRecord, RepairRecord, RunRecord
    from headrace.ledger.store import Ledger

app = typer.Typer(help="List runs; show one, its logs, compare two.", no_args_is_help=True)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of the run, the beginning of one, or `last`.")
]

MARKS = {"success": "✓", "excluded": "·", "running": "▸", "queued": "…"}


@app.command("list")
def list_runs(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")] = 20,
    pipeline: Annotated[str | None, typer.Option(help="Only runs of this pipeline.")] = None,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """List the latest runs, newest first."""
    from headrace.cli.output import print_json, print_table

    with _open(env) as ledger:
        ledger.reap_expired()
        runs = ledger.list_runs(limit=limit, pipeline=pipeline)
    if json:
        print_json([run.model_dump(mode="json") for run in runs])
        return
    print_table(
        ("run", "pipeline", "state", "started", "took", "user", "environment"),
        (
            (
                run.id,
                run.pipeline,
                run.state,
                _when(run.started_at),
                _took(run.started_at, run.ended_at),
                run.user,
                run.environment,
            )
            for run in runs
        ),
        right=("took",),
    )


@app.command("show")
def show_run(run: RunArgument = "last", *, env: EnvOption = None, json: JsonOption = False) -> None:
    """Show a run as a graph: each task, its attempts, its inputs and outputs."""
    from headrace.cli.output import print_json, print_line
    from headrace.orchestration.usage_table import totals

    with _open(env) as ledger:
        ledger.reap_expired()
        record = ledger.get_run(run)
        repairs = ledger.repairs(record.id)
        attempts = ledger.attempts(record.id)
        used = totals(ledger.usage_rows(run_id=record.id))
        fired = ledger.firing_of_run(record.id)
    if json:
        print_json(
            {
                **record.model_dump(mode="json"),
                "repairs": [_public(repair) for repair in repairs],
                "attempts": [_public(attempt) for attempt in attempts],
                "usage": used,
                "trigger": fired.model_dump(mode="json") if fired else None,
            }
        )
        return
    from headrace.cli.run_graph import print_run

    print_run(record, repairs, attempts)
    if fired is not None:
        print_line(f"started by  {fired.trigger}: {fired.key}")
    print_line(f"used        {used_text(used)}")


@app.command("logs")
def show_logs(
    run: RunArgument,
    task: Annotated[str, typer.Argument(help="Task, or task/key for an item of a for-each.")],
    *,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Which attempt; the last one.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the attempt ends.")
    ] = False,
    env: EnvOption = None,
) -> None:
    """Print what a task printed."""
    with _open(env) as ledger:
        record = ledger.get_run(run)
        found = _find_attempt(ledger, record, task, attempt)
        from headrace.cli.follow import print_log

        print_log(ledger, found, follow=follow)


@app.command("diff")
def diff_runs(
    first: RunArgument, second: RunArgument, *, env: EnvOption = None, json: JsonOption = False
) -> None:
    """Compare two runs: parameters, code, table versions, results."""
    from headrace.cli.output import print_json, print_line, print_table
    from headrace.cli.run_facts import run_facts

    with _open(env) as ledger:
        records = [ledger.get_run(first), ledger.get_run(second)]
        facts = [run_facts(ledger, record) for record in records]
    names = sorted(set(facts[0]) | set(facts[1]))
    changed = [
        (name, facts[0].get(name), facts[1].get(name))
        for name in names
        if facts[0].get(name) != facts[1].get(name)
    ]
    if json:
        print_json({name: {"first": one, "second": two} for name, one, two in changed})
        return
    print_table(("", records[0].id, records[1].id), changed)
    print_line(f"{len(names) - len(changed)} of {len(names)} facts are the same.", style="dim")


@app.command("mark")
def mark(
    run: RunArgument,
    task: Annotated[str, typer.Argument(help="Task, or task/key for an item of a for-each.")],
    state: Annotated[str, typer.Argument(metavar="success|failed", help="What it counts as.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")],
    env: EnvOption = None,
) -> None:
    """Say by hand how a task ended; the reason is kept with it."""
    import getpass

    from headrace.cli.output import print_line
    from headrace.ledger.records import split_name

    if state not in ("success", "failed"):
        raise typer.BadParameter("write success or failed", param_hint="STATE")
    name, key = split_name(task)
    with _open(env) as ledger:
        ledger.reap_expired()
        record = ledger.get_run(run)
        marked = ledger.mark(
            record.id,
            name,
            key,
            state="success" if state == "success" else "failed",
            reason=reason,
            user=getpass.getuser(),
        )
        now = ledger.get_run(record.id).state
    print_line(f"{marked.name} of run {record.id} counts as {state}; the run is {now}.")


def _open(env: str | None) -> Ledger:
    """The ledger alone: these commands start nothing."""
    from headrace.ledger.store import open_ledger
    from headrace.profiles.load import load_environment
    from headrace.profiles.project import find_project, state_dir

    root = find_project()
    state_dir(root)
    return open_ledger(load_environment(env, root=root).ledger_url)


def _find_attempt(ledger: Ledger, run: RunRecord, task: str, number: int | None) -> AttemptRecord:
    from headrace.exceptions import TaskNotFoundError

    attempts = ledger.attempts(run.id)
    fitting = [a for a in attempts if a.name == task and number in (None, a.number)]
    if not fitting:
        known = sorted({f"{a.name}" for a in attempts})
        where = f"Run {run.id}" if number is None else f"Run {run.id}, attempt {number},"
        raise TaskNotFoundError(task=task, where=where, defined=known)
    return fitting[-1]


def _public(record: RepairRecord | AttemptRecord) -> dict[str, Any]:
    """A record without its fence token, which is a right and not a fact."""
    return record.model_dump(mode="json", exclude={"token"})


def _when(moment: datetime | None) -> str | None:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else None


def _took(begin: datetime | None, end: datetime | None) -> str | None:
    if begin is None:
        return None
    # A clock that was set back in between makes it unknown, not negative.
    return seconds_text(max(0.0, ((end or datetime.now(UTC)) - begin).total_seconds()))


def used_text(used: dict[str, float]) -> str:
    """What attempts took together, in a line."""
    from headrace.cli.output import size_text

    parts = [
        f"{seconds_text(used['seconds'])} of attempts",
        f"{seconds_text(used['cpu_s'])} CPU",
        f"{used['peak_memory_mib']:,.0f} MiB at most",
        f"{size_text(used['read_bytes'])} read",
        f"{size_text(used['written_bytes'])} written",
    ]
    parts += [f"{used['spark_tasks']:,.0f} Spark tasks"] if used["spark_tasks"] else []
    parts += [f"{used['ray_tasks']:,.0f} Ray tasks"] if used["ray_tasks"] else []
    return ", ".join(parts) + f", cost {used['cost']:,.4f}"


def seconds_text(seconds: float) -> str:
    """Seconds for people: `12 s`, `3 m 05 s`, `2 h 01 m`.

    Example:
        >>> [seconds_text(value) for value in (12.3, 185, 7300)]
        ['12 s', '3 m 05 s', '2 h 01 m']
    """
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
