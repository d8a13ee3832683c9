"""`headrace doctor`: check this machine and this project, with a fix for each fault."""

from __future__ import annotations

from typing import Final

import typer

from headrace.cli.app import EXIT_ENGINE
from headrace.cli.check import Check
from headrace.cli.checks import run_checks
from headrace.cli.options import EnvOption, JsonOption
from headrace.cli.output import console, print_json

app = typer.Typer(help="Check this machine, with a fix for each fault.", add_completion=False)

MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@app.command()
def doctor(*, env: EnvOption = None, json: JsonOption = False) -> None:
    """Check Python, packages, Java, JARs, space, memory, ports, servers, the lake and the clock.

    Exit code 0 when nothing is broken (warnings are fine), 3 otherwise.
    """
    checks = []
    for check in run_checks(env):
        checks.append(check)
        if not json:
            _print(check)
    faults = sum(check.state == "fault" for check in checks)
    if json:
        print_json([check._asdict() for check in checks])
    else:
        warnings = sum(check.state == "warning" for check in checks)
        typer.echo(f"\n{len(checks)} checks: {faults} faults, {warnings} warnings.")
    if faults:
        raise typer.Exit(EXIT_ENGINE)


def _print(check: Check) -> None:
    from rich.text import Text

    mark, style = MARKS[check.state]
    out = console()
    out.print(Text.assemble((mark, style), f" {check.name:<14} ", check.found))
    if check.fix:
        out.print(Text.assemble(" " * 17, ("Fix: ", "bold green"), check.fix))
