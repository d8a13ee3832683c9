"""The `headrace` command: its table of commands, how errors look, and what exit codes mean.

Exit codes: 0 all is well; 1 a run failed; 2 wrong input (usage, profile, table, parameter); 3 an
engine or a service failed; 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.exceptions import DataError, EngineError, HeadraceError, UserError


class Lazy(NamedTuple):
    """A command that isn't loaded yet.

    Attributes:
        module: Module with `app`, a `typer.Typer`.
        help: Its line in `headrace --help`.
        panel: Heading that it stands under.
        app: Name of the `typer.Typer` in the module.
    """

    module: str
    help: str
    panel: str
    app: str = "app"


# A module is imported when its command is called, so that help and completion stay quick.
COMMANDS: Final[dict[str, Lazy]] = {
    "run": Lazy("headrace.cli.run", "Run a pipeline here and watch it.", "Run"),
    "runs": Lazy("headrace.cli.runs", "List runs; show one, its logs, compare two.", "Run"),
    "repair": Lazy("headrace.cli.repair", "Run again what failed, and only that.", "Run"),
    "cancel": Lazy("headrace.cli.repair", "End a run that goes on.", "Run", "cancel_app"),
    "serve": Lazy("headrace.cli.serve", "Start pipelines when their triggers say so.", "Run"),
    "triggers": Lazy(
        "headrace.cli.triggers", "List what starts pipelines; pause, resume, fire, show.", "Look"
    ),
    "usage": Lazy("headrace.cli.usage", "What runs took and what they cost.", "Look"),
    "profiles": Lazy("headrace.cli.profiles", "List compute profiles, explain one.", "Look"),
    "advise": Lazy(
        "headrace.cli.advise", "Say which engine a table needs, if any, and why.", "Look"
    ),
    "tables": Lazy("headrace.cli.tables", "List tables, show and check one.", "Look"),
    "gc": Lazy("headrace.cli.gc", "Remove what old runs left.", "Run"),
    "up": Lazy("headrace.cli.servers", "Start the project's Prefect server.", "Project", "up_app"),
    "down": Lazy("headrace.cli.servers", "End the background servers.", "Project", "down_app"),
    "ui": Lazy("headrace.cli.servers", "Print or open the pages.", "Project", "ui_app"),
    "doctor": Lazy(
        "headrace.cli.doctor", "Check this machine, with a fix for each fault.", "Project"
    ),
    "init": Lazy("headrace.cli.init", "Make a new project from the reference project.", "Project"),
}

EXIT_RUN_FAILED: Final = 1
EXIT_USER: Final = 2
EXIT_ENGINE: Final = 3
EXIT_INTERRUPTED: Final = 130
DEBUG_VARIABLE: Final = "HEADRACE_DEBUG"


class LazyGroup(TyperGroup):
    """A command group that knows its commands' names and help, and loads the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, lazy in COMMANDS.items():
            stub = TyperCommand(name=name, help=lazy.help, callback=None)
            stub.rich_help_panel = lazy.panel
            self.commands[name] = stub

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is about to run (or to be completed)."""
        name = args[0] if args else ""
        if name in COMMANDS:
            module = importlib.import_module(COMMANDS[name].module)
            self.commands[name] = typer.main.get_command(getattr(module, COMMANDS[name].app))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the overview without rich, whose help pages alone take 0.2 s of CPU to load."""
        name = ctx.command_path
        bold = {"bold": True}
        formatter.write(f"{typer.style('Usage:', **bold)} {name} [OPTIONS] COMMAND [ARGS]...\n\n")
        formatter.write(f"{self.help}\n")
        panels: dict[str, list[tuple[str, str]]] = {}
        for command, lazy in COMMANDS.items():
            panels.setdefault(lazy.panel, []).append((command, lazy.help))
        records = (param.get_help_record(ctx) for param in self.get_params(ctx))
        panels["Options"] = [record for record in records if record]
        for panel, rows in panels.items():
            width = max(len(left) for left, _ in rows)
            formatter.write(f"\n{typer.style(panel, **bold)}\n")
            for left, right in rows:
                formatter.write(f"  {typer.style(left.ljust(width), fg='cyan')}  {right}\n")
        formatter.write(f"\n`{name} COMMAND --help` tells more about a command.\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--debug` from anywhere, also after the command."""
        end = args.index("--") if "--" in args else len(args)
        if "--debug" in args[:end]:
            os.environ[DEBUG_VARIABLE] = "1"
            args = [arg for arg in args[:end] if arg != "--debug"] + args[end:]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of ours becomes its three lines and an exit code."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            report(error)
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt:
            typer.echo("\nInterrupted.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # `headrace ... | head` has read enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from headrace import __version__

        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks (also HEADRACE_DEBUG=1).")
    ] = False,
) -> None:
    """Spark writes Delta tables, Ray reads a pinned version of them, MLflow keeps the results."""


def exit_code(error: HeadraceError) -> int:
    """The exit code of a command that ended with `error`."""
    if isinstance(error, UserError | DataError):
        return EXIT_USER
    return EXIT_ENGINE if isinstance(error, EngineError) else EXIT_RUN_FAILED


def report(error: HeadraceError) -> None:
    """Print an error's lines on stderr, without a traceback unless it is asked for."""
    if os.environ.get(DEBUG_VARIABLE) == "1":
        import traceback

        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        return
    first, *rest = str(error).splitlines() or [""]
    title = typer.style(type(error).__name__, fg="red", bold=True)
    typer.echo(f"{title}: {first}", err=True)
    for line in rest:
        fix = line.startswith("Fix: ")
        label = typer.style("Fix:", fg="green", bold=True)
        typer.echo(f"{label}{line.removeprefix('Fix:')}" if fix else line, err=True)


def main() -> None:
    """Entry point of the `headrace` script."""
    app(prog_name="headrace")
