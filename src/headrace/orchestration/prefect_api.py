"""Finds the Prefect server that a run uses, and starts the project's own when there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from headrace.exceptions import RunTrackingError
from headrace.orchestration.servers import Server, answers, prefect_server
from headrace.profiles.models import Environment


def ensure_prefect(
    environment: Environment, state: Path, *, on_wait: Callable[[float], None] | None = None
) -> str:
    """Make sure that a Prefect server answers, and let this process use it.

    Order: PREFECT_API_URL, the environment's `[prefect] api_url`, the project's own server in the
    background. Prefect's ephemeral server is never used: it gives up after 20 s on a busy machine
    and loses records of short processes.

    Args:
        environment: The environment of the run.
        state: The project's state folder.
        on_wait: Called with the seconds waited while a server starts.

    Returns:
        The address of Prefect's API.

    Raises:
        RunTrackingError: The server that is configured does not answer.
        ServerStartError: The project's own server did not start.
    """
    url = configured_api(environment)
    if url is None:
        url = project_server(environment, state).ensure(on_wait=on_wait) + "/api"
    elif not answers(url.rstrip("/") + "/health", timeout_s=30):
        raise RunTrackingError(url=url, reason="no good answer from /health")
    use_prefect(url)
    return url


def configured_api(environment: Environment) -> str | None:
    """The Prefect API that PREFECT_API_URL or the environment names, or None for our own."""
    return os.environ.get("PREFECT_API_URL") or environment.prefect.api_url


def project_server(environment: Environment, state: Path) -> Server:
    """The project's own Prefect server; its port is only binding when the file names one."""
    settings = environment.prefect
    return prefect_server(state, port=settings.port, start_limit_s=settings.timeout_s)


def use_prefect(url: str) -> None:
    """Point this process, and those that it starts, to the Prefect API at `url`."""
    if os.environ.get("PREFECT_API_URL") == url and _settings_url() == url:
        return
    os.environ["PREFECT_API_URL"] = url
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()


def page(url: str) -> str:
    """The address of Prefect's pages, from its API's."""
    return url.rstrip("/").removesuffix("/api")


def _settings_url() -> str | None:
    from prefect.settings import get_current_settings

    return get_current_settings().api.url
