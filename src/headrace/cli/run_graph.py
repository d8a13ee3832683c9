"""Draws a run: its tasks in the order of the data, each with its attempts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from headrace.cli.output import console, print_line
from headrace.cli.runs import seconds_text

if TYPE_CHECKING:
    from headrace.ledger.records import AttemptRecord, RepairRecord, RunRecord

STYLES = {
    "success": "green",
    "excluded": "dim",
    "running": "cyan",
    "queued": "cyan",
    "upstream_failed": "yellow",
    "cancelled": "yellow",
}


def print_run(run: RunRecord, repairs: list[RepairRecord], attempts: list[AttemptRecord]) -> None:
    """Print a run's facts and its graph."""
    print_line(f"{run.pipeline}  run {run.id}", style="bold")
    out = console()
    out.print(Text.assemble("state       ", (run.state, STYLES.get(run.state, "red"))))
    for name, value in _facts(run):
        print_line(f"{name:<12}{value}")
    for repair in repairs[1:]:
        changed = f" with {repair.parameters}" if repair.parameters else ""
        print_line(f"repair {repair.seq:<5}{repair.state} by {repair.user}{changed}")
    tree = Tree("", hide_root=True)
    by_name: dict[str, list[AttemptRecord]] = {}
    for attempt in attempts:
        by_name.setdefault(attempt.name, []).append(attempt)
    for name, own in by_name.items():
        _add_task(tree, name, own)
    out.print(tree)


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    code = run.code.commit[:12] if run.code.commit else "unknown"
    facts = [
        ("flow", run.entrypoint),
        ("parameters", ", ".join(f"{k}={v}" for k, v in run.parameters.items()) or "none"),
        ("environment", run.environment),
        ("code", code + (" with changes" if run.code.dirty else "")),
        ("user", run.user),
    ]
    if run.mlflow_run_id:
        facts.append(("mlflow run", run.mlflow_run_id))
    if run.prefect_flow_run_id:
        facts.append(("prefect run", run.prefect_flow_run_id))
    return facts


def _add_task(tree: Tree, name: str, attempts: list[AttemptRecord]) -> None:
    last = attempts[-1]
    after = f"  after {', '.join(last.depends_on)}" if last.depends_on else ""
    style = STYLES.get(last.state, "red")
    branch = tree.add(Text.assemble((name, "bold"), "  ", (last.state, style), (after, "dim")))
    for attempt in attempts:
        _add_attempt(branch, attempt)
    for use in last.inputs:
        branch.add(Text(f"reads  {use.ref}  {use.ref.uri}", style="dim"))
    for use in last.outputs:
        rows = f", {use.ref.row_count:,} rows" if use.ref.row_count is not None else ""
        branch.add(Text(f"{use.mode}  {use.ref}{rows}  {use.ref.uri}", style="dim"))


def _add_attempt(branch: Tree, attempt: AttemptRecord) -> None:
    parts: list[str] = [f"attempt {attempt.number}", attempt.state]
    if attempt.reused_from is not None:
        parts.append(f"reused by repair {attempt.repair_seq}")
    elif attempt.started_at is not None:
        parts.append(seconds_text(_took_s(attempt, attempt.started_at)))
        parts += _usage(attempt)
        if attempt.profile:
            parts.append(f"on {attempt.profile}")
    if attempt.marked_by:
        parts.append(f"marked by {attempt.marked_by}: {attempt.reason}")
    elif attempt.reason:
        parts.append(attempt.reason)
    style = STYLES.get(attempt.state, "red")
    node = branch.add(Text("  ".join(parts), style="" if style == "green" else style))
    if attempt.error is not None:
        first = (attempt.error.message.strip().splitlines() or [""])[0]
        node.add(Text(f"{attempt.error.type}: {first}", style="red"))
    if attempt.log_path and attempt.reused_from is None:
        node.add(Text(attempt.log_path, style="dim"))


def _took_s(attempt: AttemptRecord, begin: datetime) -> float:
    """What was measured, which no clock on a wall changes; else by the times of day."""
    measured = (attempt.usage or {}).get("wall_s")
    by_clock = ((attempt.ended_at or datetime.now(UTC)) - begin).total_seconds()
    return float(measured or max(0.0, by_clock))


def _usage(attempt: AttemptRecord) -> list[str]:
    usage = attempt.usage or {}
    parts = []
    if usage.get("cpu_s"):
        parts.append(f"{usage['cpu_s']:.1f} s CPU")
    if usage.get("peak_memory_mib"):
        parts.append(f"{usage['peak_memory_mib']:,.0f} MiB")
    return parts
