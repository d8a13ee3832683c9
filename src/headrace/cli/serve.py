"""`headrace serve`: the process that stays, and starts pipelines when their triggers say so."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.orchestration.pipeline import Pipeline
    from headrace.orchestration.project import Project

app = typer.Typer()

PREFECT_S = 5.0
NOTICE_S = 5.0
USAGE_S = 60.0


@app.command("serve")
def serve(
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE]...", help="Modules or MODULE.FLOW; all of flows/ by default."
        ),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the next ten firings and start nothing.")
    ] = False,
    env: EnvOption = None,
    json: JsonOption = False,
) -> None:
    """Deploy pipelines to Prefect, watch their triggers, start their runs, until it is ended.

    Each run has a process of its own, which goes on when this one ends. Several may serve the
    same pipelines.
    """
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project
    from headrace.orchestration.triggers.find import find_pipelines

    with use_options(RunOptions(env=env)):
        project = load_project()
        pipelines = find_pipelines(modules or [], root=project.root)
        if dry_run:
            from headrace.cli.triggers import print_next

            print_next(project, pipelines, json=json)
            return
        _set_up_log()
        _serve(project, pipelines)


def _serve(project: Project, pipelines: dict[str, Pipeline[Any, Any]]) -> None:
    import getpass

    from headrace.cli.output import print_line
    from headrace.orchestration.triggers.find import served
    from headrace.orchestration.triggers.notices import NoticeSender
    from headrace.orchestration.triggers.prefect_side import PrefectSide
    from headrace.orchestration.triggers.serve import Serving, keep_doing
    from headrace.orchestration.triggers.starter import ProcessStarter
    from headrace.orchestration.triggers.watchers import Surroundings
    from headrace.orchestration.usage_table import write_usage

    plain = served(pipelines)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    count = sum(len(pipeline.policy.triggers) for pipeline in plain)
    print_line(f"Serving {len(plain)} pipelines with {count} triggers; Ctrl-C ends it.")
    with project.open_ledger() as ledger:
        around = Surroundings(project=project, ledger=ledger, user=getpass.getuser())
        starter = ProcessStarter(project)
        by_name = {pipeline.name: pipeline for pipeline in plain}
        prefect = PrefectSide(around, pipelines, by_name, starter)
        notices = NoticeSender(around, by_name)
        threads = [
            keep_doing(prefect.turn, every_s=PREFECT_S, name="Prefect", stop=stop),
            keep_doing(notices.turn, every_s=NOTICE_S, name="notifications", stop=stop),
            keep_doing(
                lambda: write_usage(project, ledger), every_s=USAGE_S, name="usage", stop=stop
            ),
        ]
        Serving(around, plain, starter).run(stop)
        for thread in threads:
            thread.join(timeout=10)
    print_line("Ended. Runs that are at work go on.")


def _set_up_log() -> None:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("headrace.serve")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
