"""Copies runs that were tracked while the MLflow server was away to the server."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from headrace.tracking.records import RunLog
from headrace.tracking.tracker import NAME_TAG, OFFLINE_STORE, PARENT_TAG, log_record

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run
    from mlflow.tracking import MlflowClient

RESENT_TAG = "headrace.resent_as"


def resend_offline_runs(outbox: Path, server: MlflowClient) -> int:
    """Copy every run of the outbox's own MLflow store that the server doesn't have yet.

    A run that is copied is marked with the id of its copy, so a second call copies nothing twice.
    Registered models become versions of the server's models of the same names.

    Args:
        outbox: The outbox folder; it may have no store of its own.
        server: Client of the server that answers again.

    Returns:
        How many runs were copied.
    """
    store = outbox / OFFLINE_STORE
    with (outbox / "resend.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another run is at it
        if not store.exists():
            return 0
        copied = _copy_all(store, server)
        # Kept for the eye, and out of the way of the next look.
        store.rename(store.with_name(f"sent-{time.time_ns()}.db"))
        return copied


def _copy_all(store: Path, server: MlflowClient) -> int:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{store}"
    local = MlflowClient(tracking_uri=uri, registry_uri=uri)
    copied: dict[str, str] = {}
    for experiment in local.search_experiments():
        runs = local.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
        for run in runs:
            known = run.data.tags.get(RESENT_TAG)
            if known is None:
                known = _copy_run(local, server, experiment, run, copied)
                local.set_tag(run.info.run_id, RESENT_TAG, known)
                _copy_models(local, server, run.info.run_id, known)
            copied[run.info.run_id] = known
    return len(copied)


def _copy_run(
    local: MlflowClient,
    server: MlflowClient,
    experiment: Experiment,
    run: Run,
    copied: dict[str, str],
) -> str:
    """Copy one run with its parameters, metric history, inputs and artifacts; give the new id."""
    found = server.get_experiment_by_name(experiment.name)
    experiment_id = found.experiment_id if found else server.create_experiment(experiment.name)
    tags = dict(run.data.tags)
    if PARENT_TAG in tags:
        tags[PARENT_TAG] = copied.get(tags[PARENT_TAG], tags[PARENT_TAG])
    tags.setdefault(NAME_TAG, run.info.run_name or run.info.run_id)
    new = str(
        server.create_run(experiment_id, start_time=run.info.start_time, tags=tags).info.run_id
    )
    history = [
        point
        for name in run.data.metrics
        for point in local.get_metric_history(run.info.run_id, name)
    ]
    for start in range(0, len(history), 1000):  # a batch takes at most 1000 metrics
        server.log_batch(new, metrics=history[start : start + 1000])
    if run.inputs and run.inputs.dataset_inputs:
        server.log_inputs(new, datasets=run.inputs.dataset_inputs)
    folder = _local_path(run.info.artifact_uri)
    if folder.is_dir():
        server.log_artifacts(new, str(folder))
    log_record(
        server,
        RunLog(
            mlflow_run_id=new,
            params=run.data.params,
            status=run.info.status if run.info.status in ("FINISHED", "FAILED", "KILLED") else None,
            time_ms=run.info.end_time or run.info.start_time,
        ),
    )
    return new


def _copy_models(local: MlflowClient, server: MlflowClient, old: str, new: str) -> None:
    """Register on the server what the run had registered."""
    from mlflow.exceptions import MlflowException

    for version in local.search_model_versions(f"run_id = '{old}'"):
        uri = local.get_model_version_download_uri(version.name, version.version)
        folder = f"registered/{version.name}-{version.version}"
        server.log_artifacts(new, str(_local_path(uri)), folder)
        try:
            server.create_registered_model(version.name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        root = server.get_run(new).info.artifact_uri.rstrip("/")
        server.create_model_version(version.name, source=f"{root}/{folder}", run_id=new)


def _local_path(uri: str) -> Path:
    """The folder behind a `file:` address or a plain path."""
    parsed = urlparse(uri)
    return Path(unquote(parsed.path) if parsed.scheme == "file" else uri)
