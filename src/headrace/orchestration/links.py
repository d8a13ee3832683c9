"""Addresses of the pages about a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.orchestration.prefect_api import page
from headrace.orchestration.servers import mlflow_server

if TYPE_CHECKING:
    from headrace.orchestration.session import RunSession


def run_links(session: RunSession, flow_run_id: UUID) -> dict[str, str]:
    """Pages about a run, by what they show; MLflow's only while a server shows it."""
    links = {}
    url = os.environ.get("PREFECT_API_URL")
    if url:
        links["Prefect"] = f"{page(url)}/runs/flow-run/{flow_run_id}"
    root = mlflow_page(session)
    if root and session.mlflow_run_id:
        experiment = session.tracker.experiment_id(session.experiment)
        links["MLflow"] = f"{root}/#/experiments/{experiment}/runs/{session.mlflow_run_id}"
    return links


def mlflow_page(session: RunSession) -> str | None:
    """The address of MLflow's pages, or None when only a database file is there."""
    uri = session.tracker.tracking_uri
    if uri.startswith(("http://", "https://")):
        return uri.rstrip("/")
    return mlflow_server(session.project.state, tracking_uri=uri, artifact_root=None).find()
