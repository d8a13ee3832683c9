"""`headrace gc`: remove what old runs left, and keep what a repair may still need."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.ledger.retention import Removal, RetentionRule
    from headrace.orchestration.project import Project

app = typer.Typer(add_completion=False)

STAGING_DAYS = 1


@app.command("gc")
def gc(
    *,
    files_days: Annotated[
        float, typer.Option(min=0, help="Keep logs and results of successful runs so long.")
    ] = 14,
    repair_days: Annotated[
        float, typer.Option(min=0, help="Keep those of other runs, for a repair, so long.")
    ] = 60,
    rows_days: Annotated[
        float, typer.Option(min=0, help="Keep the ledger's rows of a run so long.")
    ] = 365,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print it and remove nothing.")
    ] = False,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Remove logs, results, staging tables and ledger rows of old runs."""
    from headrace.cli.output import print_json, print_line, print_table
    from headrace.ledger.retention import RetentionRule, load_removals
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.usage_table import write_usage

    with use_options(RunOptions(env=env)):
        project = load_project()
    rule = RetentionRule(files_days=files_days, repair_days=repair_days, rows_days=rows_days)
    with project.open_ledger() as ledger:
        ledger.reap_expired()
        if not dry_run:
            write_usage(project, ledger)  # before rows that it is made of go
        removals = load_removals(ledger, now=datetime.now(UTC), rule=rule)
    freed = sum(_size(project, removal) for removal in removals if removal.files)
    if not dry_run:
        _remove(project, removals, rule)
    if json:
        print_json({"removals": [vars(removal) for removal in removals], "bytes": freed})
        return
    going = [removal for removal in removals if removal.files or removal.rows]
    print_table(
        ("run", "files", "rows", "why"),
        ((r.run_id, "yes" if r.files else "", "yes" if r.rows else "", r.why) for r in going),
    )
    verb = "would be removed" if dry_run else "removed"
    print_line(f"{len(going)} runs, {freed / 2**20:.1f} MiB of files {verb}.")


def _remove(project: Project, removals: list[Removal], rule: RetentionRule) -> None:
    from headrace.bridge.staging import remove_staging
    from headrace.ledger.retention import remove_firings, remove_rows

    environment = project.environment
    for removal in removals:
        if removal.files:
            shutil.rmtree(project.state / "runs" / removal.run_id, ignore_errors=True)
    remove_staging(
        older_than=timedelta(days=STAGING_DAYS),
        lake=environment.lake,
        storage=environment.storage,
    )
    with project.open_ledger() as ledger:
        remove_rows(ledger, [removal.run_id for removal in removals if removal.rows])
        remove_firings(ledger, now=datetime.now(UTC), rule=rule)


def _size(project: Project, removal: Removal) -> int:
    folder = project.state / "runs" / removal.run_id
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
