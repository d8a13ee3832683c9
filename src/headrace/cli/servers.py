"""`headrace up`, `down` and `ui`: the project's background servers and their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import EnvOption, JsonOption

if TYPE_CHECKING:
    from headrace.orchestration.project import Project
    from headrace.orchestration.servers import Server

up_app = typer.Typer(add_completion=False)
down_app = typer.Typer(add_completion=False)
ui_app = typer.Typer(add_completion=False)


@up_app.command("up")
def up(*, env: EnvOption = None, json: JsonOption = False) -> None:
    """Start the project's Prefect server in the background, unless one answers already."""
    project = _project(env)
    _print_pages({"Prefect": _prefect_page(project)}, json=json)


@down_app.command("down")
def down(*, json: JsonOption = False) -> None:
    """End the servers that this project started in the background; what they keep stays."""
    from headrace.cli.output import print_json, print_line
    from headrace.orchestration.servers import mlflow_server, prefect_server
    from headrace.profiles.project import find_project, state_path

    state = state_path(find_project())
    servers = [
        prefect_server(state),
        mlflow_server(state, tracking_uri="", artifact_root=None),
    ]
    ended = {server.name: server.stop() for server in servers}
    if json:
        print_json(ended)
        return
    for name, was_up in ended.items():
        print_line(f"{name}: {'ended' if was_up else 'was not running'}")


@ui_app.command("ui")
def ui(
    *,
    env: EnvOption = None,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the pages in a browser too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print the addresses of Prefect's and MLflow's pages; servers are started when needed."""
    project = _project(env)
    pages = {"Prefect": _prefect_page(project), "MLflow": _mlflow_page(project)}
    _print_pages(pages, json=json)
    if browser:
        import webbrowser

        for page in pages.values():
            webbrowser.open(page)


def _project(env: str | None) -> Project:
    from headrace.orchestration.options import RunOptions, use_options
    from headrace.orchestration.project import load_project

    with use_options(RunOptions(env=env)):
        return load_project()


def _prefect_page(project: Project) -> str:
    from headrace.orchestration.prefect_api import configured_api, page, project_server

    configured = configured_api(project.environment)
    if configured:
        return page(configured)
    return _ensure(project_server(project.environment, project.state))


def _mlflow_page(project: Project) -> str:
    from headrace.orchestration.servers import mlflow_server

    settings = project.environment.mlflow
    if settings.tracking_uri.startswith(("http://", "https://")):
        return settings.tracking_uri
    server = mlflow_server(
        project.state, tracking_uri=settings.tracking_uri, artifact_root=settings.artifact_root
    )
    return _ensure(server)


def _ensure(server: Server) -> str:
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"Looking for {server.name}'s server ...") as status:
        return server.ensure(
            on_wait=lambda waited: status.update(
                f"Starting {server.name}'s server ... {waited:.0f} s"
            )
        )


def _print_pages(pages: dict[str, str], *, json: bool) -> None:
    from headrace.cli.output import print_json, print_table

    if json:
        print_json(pages)
    else:
        print_table(("page", "address"), pages.items())
