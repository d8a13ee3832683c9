"""`headrace run`: run a pipeline here and watch it."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import EnvOption, TaskProfilesOption

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headrace.cli.run_display import LiveDisplay, PlainDisplay
    from headrace.orchestration.options import Claimed, RunOptions
    from headrace.orchestration.pipeline import Pipeline
    from headrace.orchestration.project import Project

app = typer.Typer(help="Run a pipeline here and watch it.", add_completion=False)

EXIT_RUN_FAILED = 1


def complete_flow(incomplete: str) -> list[str]:
    """Names of the project's pipelines."""
    from headrace.exceptions import HeadraceError
    from headrace.orchestration.find_flow import defined_pipelines
    from headrace.profiles.project import find_project

    try:
        names = defined_pipelines(find_project())
    except HeadraceError:
        return []
    return [name for name in names if name.startswith(incomplete)]


@app.command("run")
def run(
    flow: Annotated[
        str,
        typer.Argument(
            metavar="MODULE.FLOW",
            help="Such as flows.train_delays.train_delays, or train_delays.",
            autocompletion=complete_flow,
        ),
    ],
    *,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="K=V", help="A parameter. Repeatable."),
    ] = None,
    env: EnvOption = None,
    profile: TaskProfilesOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what the tasks print.")
    ] = False,
) -> None:
    """Run a pipeline in this process, each task in a child process on its profile.

    Exit code 0 when every task succeeded, 1 when the run failed, 2 for a wrong name or parameter.
    """
    from headrace.orchestration.options import RunOptions
    from headrace.profiles.overrides import parse_task_profiles
    from headrace.profiles.project import find_project

    options = RunOptions(
        env=env,
        root=find_project(),
        task_profiles=parse_task_profiles(profile or [], source="--profile"),
    )
    parameters = parse_parameters(param or [])
    run_here(flow, parameters, options, verbose=verbose)


def parse_parameters(given: list[str]) -> dict[str, Any]:
    """Parameters from `K=V`: a value is JSON where it reads as such, else text.

    Raises:
        UsageError: A part has no `=`.

    Example:
        >>> parse_parameters(["seed=7", "day=2013-01-01", "cities=[1, 2]"])
        {'seed': 7, 'day': '2013-01-01', 'cities': [1, 2]}
    """
    parameters: dict[str, Any] = {}
    for part in given:
        name, equals, text = part.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{part!r} is not K=V", param_hint="--param")
        try:
            parameters[name.strip()] = json.loads(text)
        except ValueError:
            parameters[name.strip()] = text
    return parameters


def run_here(
    flow: str,
    parameters: dict[str, Any],
    options: RunOptions,
    *,
    verbose: bool,
    inherited: Collection[str] = (),
    claim: Callable[[], Claimed] | None = None,
) -> None:
    """Run a pipeline with a display, and leave with its exit code.

    Args:
        flow: Name of the pipeline, as the user typed it.
        parameters: JSON values by name.
        options: Environment, project, profiles.
        verbose: Print the tasks' lines too.
        inherited: Names of parameters that an earlier run had, and the code may no longer have.
        claim: Takes over a run that exists, just before the pipeline starts, for a repair.
    """
    from headrace.cli.output import LastingConsole
    from headrace.cli.run_display import open_display
    from headrace.orchestration.options import use_options

    console = LastingConsole()
    with use_options(options), open_display(console, verbose=verbose) as display:
        pipeline, project, typed = _prepare(flow, parameters, options, display, inherited)
        claimed = replace(options, claimed=claim()) if claim else options
        with use_options(claimed):
            failure = _run(pipeline, typed, display)
    if display.run is not None:
        from headrace.cli.run_summary import print_summary

        print_summary(console, project, display.run.run_id, display.run.links)
    if failure is not None:
        raise typer.Exit(_exit_code(failure))


def _prepare(
    flow: str,
    parameters: dict[str, Any],
    options: RunOptions,
    display: LiveDisplay | PlainDisplay,
    inherited: Collection[str],
) -> tuple[Pipeline[Any, Any], Project, dict[str, Any]]:
    from headrace.orchestration.project import load_project

    project = load_project()
    _quiet_prefect()
    from headrace.orchestration.find_flow import check_task_names, load_pipeline

    # What is wrong with the words of the command is said before any server is started.
    pipeline = load_pipeline(flow, root=options.root or project.root)
    typed = pipeline.check_parameters(parameters, inherited=inherited)
    check_task_names(options.task_profiles, pipeline=pipeline.name, root=project.root)
    display.say("Looking for Prefect's server ...")
    project.ensure_prefect(
        on_wait=lambda waited: (
            display.say(f"Starting Prefect's server ... {waited:.0f} s")
            if waited < 1 or int(waited * 2) % 10 == 0
            else None
        )
    )
    display.say(f"Starting {pipeline.name} ...")
    return pipeline, project, typed


def _run(
    pipeline: Pipeline[Any, Any], parameters: dict[str, Any], display: LiveDisplay | PlainDisplay
) -> BaseException | None:
    from headrace.orchestration.events import listening

    with ExitStack() as stack:
        stack.enter_context(listening(display))
        try:
            pipeline(**parameters)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - told by its exit code
            return error
    return None


def _quiet_prefect() -> None:
    """Let the display speak: Prefect's lines go to its server and not to the terminal."""
    os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    os.environ.setdefault("PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL", "INFO")
    import logging

    import prefect  # noqa: F401 - sets up its loggers, whose console handlers are removed here
    from prefect.logging.configuration import setup_logging
    from prefect.logging.handlers import PrefectConsoleHandler

    setup_logging()
    for name in ("", *logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        for handler in tuple(logger.handlers):
            if isinstance(handler, PrefectConsoleHandler):
                logger.removeHandler(handler)


def _exit_code(error: BaseException) -> int:
    """Tell what went wrong, if anybody still reads, and give the exit code for it."""
    from headrace.cli.app import EXIT_INTERRUPTED

    with suppress(BrokenPipeError):
        _tell(error)
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_RUN_FAILED


def _tell(error: BaseException) -> None:
    from headrace.cli.app import report
    from headrace.exceptions import HeadraceError

    if isinstance(error, KeyboardInterrupt):
        typer.echo("Interrupted; what it had started is gone.", err=True)
    elif isinstance(error, HeadraceError):
        report(error)
    else:
        import traceback

        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
