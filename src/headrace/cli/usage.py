"""`headrace usage`: what runs took and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.ledger.usage import UsageRow

app = typer.Typer()

GROUPS = ("pipeline", "task", "profile", "user", "tag")


@app.command("usage")
def usage(
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="|".join(GROUPS), help="What is added up.")
    ] = "pipeline",
    since: Annotated[
        str | None,
        typer.Option("--since", help="A date (2026-08-01), or an age such as 7d or 12h."),
    ] = None,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Add up time, CPU, memory, bytes and cost of attempts; also bring the lake's table up to date.

    Anyone can query the same figures, one row per attempt, in the table `headrace.usage`.
    """
    from headrace.cli.output import print_json, print_table, size_text
    from headrace.cli.runs import seconds_text
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.usage_table import write_usage

    if by not in GROUPS:
        raise typer.BadParameter(f"write one of {', '.join(GROUPS)}", param_hint="--by")
    begin = parse_since(since) if since else None
    with use_options(RunOptions(env=env)):
        project = load_project()
    with project.open_ledger() as ledger:
        ledger.reap_expired()
        write_usage(project, ledger)
        totals = add_up(ledger.usage_rows(since=begin), by)
    if json:
        print_json(totals)
        return
    columns = (by, "attempts", "failed", "time", "CPU", "peak memory", "read", "written", "cost")
    print_table(
        columns,
        (
            (
                total[by],
                total["attempts"],
                total["failed"],
                seconds_text(total["wall_s"]),
                seconds_text(total["cpu_s"]),
                f"{total['peak_memory_mib']:,.0f} MiB",
                size_text(total["read_bytes"]),
                size_text(total["written_bytes"]),
                f"{total['cost']:,.4f}",
            )
            for total in totals
        ),
        right=columns[1:],
    )


def add_up(rows: Iterable[UsageRow], by: str) -> list[dict[str, Any]]:
    """Totals of attempts, the dearest first.

    Args:
        rows: What the attempts used.
        by: `pipeline`, `task`, `profile`, `user` or `tag`. A run with several tags counts under
            each of them.
    """
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        for name in _names(row, by):
            total = totals.setdefault(name, {by: name, "attempts": 0, "failed": 0, "runs": set()})
            total["attempts"] += 1
            total["failed"] += row.state != "success"
            total["runs"].add(row.run_id)
            for figure in ("wall_s", "cpu_s", "read_bytes", "written_bytes", "cost"):
                total[figure] = total.get(figure, 0) + (getattr(row, figure) or 0)
            for figure in ("spark_tasks", "ray_tasks"):
                total[figure] = total.get(figure, 0) + (getattr(row, figure) or 0)
            peak = max(total.get("peak_memory_mib", 0.0), row.peak_memory_mib or 0.0)
            total["peak_memory_mib"] = peak
    for total in totals.values():
        total["runs"] = len(total["runs"])
    return sorted(totals.values(), key=lambda total: (-total["cost"], -total["wall_s"]))


def parse_since(text: str) -> datetime:
    """A moment from a date, a time or an age.

    Example:
        >>> parse_since("2026-08-01T12:00:00+00:00").isoformat()
        '2026-08-01T12:00:00+00:00'
    """
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    number, unit = text[:-1], text[-1:]
    try:
        if unit in units and number.replace(".", "", 1).isdigit():
            return datetime.now(UTC) - timedelta(**{units[unit]: float(number)})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is neither a date nor an age", param_hint="--since"
        ) from None


def _names(row: UsageRow, by: str) -> Iterable[str]:
    if by == "tag":
        return row.tags or ("-",)
    if by == "task":
        return (f"{row.pipeline}.{row.task}",)
    return (str(getattr(row, by)) or "-",)
