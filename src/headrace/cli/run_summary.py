"""What a run made, where it is, and how to look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.ledger.records import AttemptRecord, RunRecord
    from headrace.orchestration.project import Project


def print_summary(console: Console, project: Project, run_id: str, links: dict[str, str]) -> None:
    """Print the tables and results of a run, or what failed and how to go on.

    Args:
        console: Where to print.
        project: The project of the run.
        run_id: The run.
        links: Pages about it.
    """
    with project.open_ledger() as ledger:
        run = ledger.get_run(run_id)
        latest = ledger.latest_attempts(run_id)
    console.print()
    if run.state == "success":
        _print_made(console, project, latest)
    else:
        _print_failed(console, run, latest)
    _print_ways(console, run, links)


def _print_made(console: Console, project: Project, latest: dict[str, AttemptRecord]) -> None:
    _say(console, "Made", style="bold green")
    for name, attempt in latest.items():
        for output in attempt.outputs:
            rows = f"{output.ref.row_count:,} rows" if output.ref.row_count is not None else ""
            _say(console, f"  table  {output.ref!s:<24} {rows:>16}  {output.ref.uri}")
        for key, value in _results(attempt):
            _say(console, f"  {name}.{key} = {value}")
    _say(console, f"  logs   {project.state / 'runs'}")


def _results(attempt: AttemptRecord) -> list[tuple[str, str]]:
    """Plain values that a task returned, for the eye: no references, nothing long."""
    if not isinstance(attempt.result, dict):
        return []
    plain = (str, int, float, bool)
    shown = [
        (key, value)
        for key, value in attempt.result.items()
        if isinstance(value, plain) and "\n" not in str(value)
    ]
    return [
        (key, f"{value:,.4g}" if isinstance(value, float) else str(value)) for key, value in shown
    ]


def _print_failed(console: Console, run: RunRecord, latest: dict[str, AttemptRecord]) -> None:
    _say(console, f"Run {run.id} ended as {run.state}", style="bold red")
    for name, attempt in latest.items():
        if attempt.state in ("success", "excluded"):
            _say(console, f"  {name}: {attempt.state}, will be reused")
            continue
        reason = attempt.error.message if attempt.error else attempt.reason or ""
        first = reason.strip().splitlines()[0] if reason.strip() else ""
        _say(console, f"  {name}: {attempt.state}  {first}", style="red")
        if attempt.log_path:
            _say(console, f"    log: {attempt.log_path}", style="dim")


def _print_ways(console: Console, run: RunRecord, links: dict[str, str]) -> None:
    _say(console, "\nLook", style="bold")
    ways = {f"headrace runs show {run.id}": "each task, its attempts, inputs and outputs"}
    if run.state == "success":
        ways["headrace tables list"] = "the lake"
    else:
        ways[f"headrace repair {run.id}"] = "run again what failed, and only that"
    ways["headrace ui"] = "Prefect's and MLflow's pages"
    for command, what in ways.items():
        _say(console, f"  {command:<40} {what}")
    for name, url in links.items():
        _say(console, f"  {name:<8} {url}")


def _say(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
