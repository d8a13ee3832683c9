"""A task on a Ray cluster that is not this machine's: sent as a job, watched from the attempt."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import tempfile
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from headrace.engines.code_zip import zip_code
from headrace.engines.job_api import ENDED, JobApi
from headrace.engines.job_folder import JobFolder, attached_files
from headrace.engines.spec import AttemptSpec
from headrace.engines.versions import RAY_PACKAGES, compare_versions, own_versions
from headrace.exceptions import EngineStartError, JobStorageError, TaskCrashedError
from headrace.profiles.secrets import has_password
from headrace.profiles.storage import SECRET_FIELDS

_log = logging.getLogger("headrace.engines")

JOB_VARIABLE: Final = "HEADRACE_JOB"
TOKEN_VARIABLE: Final = "HEADRACE_RAY_JOB_TOKEN"  # noqa: S105 - the variable's name
_POLL_S: Final = 1.0
_STOP_S: Final = 20.0
_LOST_S: Final = 120.0


def run_job(spec: AttemptSpec) -> dict[str, Any]:
    """Run a task as a job of its profile's cluster, and print what it prints.

    The job ends with this process, unless that is killed together with its supervisor; then the
    task's next attempt ends it.

    Returns:
        The outcome as the job wrote it, with attached files fetched.

    Raises:
        EngineStartError: The cluster does not take the job.
        VersionMismatchError: Its Ray is another one.
        JobStorageError: The lake is a folder of this machine.
        TaskCrashedError: The job ended without an outcome.
    """
    address = spec.address or ""
    _check_lake(spec, address)
    api = JobApi(address, os.environ.pop(TOKEN_VARIABLE, ""))
    compare_versions(
        {"ray": metadata.version("ray")}, {"ray": api.version()}, cluster=f"Ray at {address}"
    )
    job = job_id(spec)
    _end_earlier(api, job)
    folder = JobFolder(spec.lake, job, spec.storage)
    folder.write("spec.json", _portable(spec))
    try:
        api.submit(
            {
                "submission_id": job,
                "entrypoint": "python -u -m headrace.engines._job",
                "runtime_env": {"working_dir": _ship(api, spec.root), "env_vars": _env(spec)},
                "metadata": {
                    "run": spec.run_id,
                    "task": spec.task,
                    "attempt": str(spec.attempt),
                    "pipeline": spec.pipeline,
                },
            }
        )
        _log.info("job %s at %s", job, address)
        status, message = _follow(api, job)
        result = folder.read("result.json")
        if not isinstance(result, dict):
            raise TaskCrashedError(
                task=spec.task,
                how=f"ended as job {job} ({status}: {message}) without a result",
                log_path=str(spec.folder / "log.txt"),
                tail="",
            )
        for item in attached_files(result):
            item["path"] = str(folder.fetch_file(item["path"], spec.folder))
        return result
    finally:
        _end(api, job)
        with suppress(OSError):
            folder.remove()


def job_id(spec: AttemptSpec) -> str:
    """The job's id: the same for the same attempt, and alike for all attempts of a task."""
    key = f"-{hashlib.sha256(spec.key.encode()).hexdigest()[:8]}" if spec.key else ""
    task = re.sub(r"[^\w-]+", "-", spec.task)
    return f"headrace-{spec.run_id}-{task}{key}.{spec.attempt}"


def _check_lake(spec: AttemptSpec, address: str) -> None:
    """A folder as lake is fine for a cluster on this machine, and nowhere else."""
    host = re.sub(r"^https?://|[:/].*$", "", address)
    if "://" not in spec.lake and host not in ("127.0.0.1", "localhost"):
        raise JobStorageError(task=spec.task, lake=spec.lake, cluster=address)


def _portable(spec: AttemptSpec) -> dict[str, Any]:
    """The spec without what is this machine's: paths, addresses, secrets."""
    file = spec.function.file
    inside = file.relative_to(spec.root).as_posix() if file.is_relative_to(spec.root) else str(file)
    plain: dict[str, Any] = json.loads(spec.model_dump_json(exclude={"address", "scratch"}))
    return {
        **plain,
        "function": {**plain["function"], "file": inside},
        "versions": own_versions(RAY_PACKAGES),
    }


def _env(spec: AttemptSpec) -> dict[str, str]:
    """What the job is told from outside: everybody who sees the cluster's jobs can read it."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _mlflow_names() and not has_password(value)
    }
    storage = spec.storage.model_dump(mode="json", exclude={*SECRET_FIELDS, "refresh_command"})
    job = {"lake": spec.lake, "job": job_id(spec), "storage": storage}
    return {**passed, JOB_VARIABLE: json.dumps(job), "PYTHONUNBUFFERED": "1"}


def _mlflow_names() -> tuple[str, ...]:
    names = ("TRACKING_URI", "REGISTRY_URI", "EXPERIMENT_NAME", "RUN_ID", "DISABLE_TELEMETRY")
    limits = ("TIMEOUT", "MAX_RETRIES", "BACKOFF_FACTOR")
    return tuple(
        f"MLFLOW_{name}" for name in (*names, *(f"HTTP_REQUEST_{limit}" for limit in limits))
    )


def _ship(api: JobApi, root: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-code-") as name:
        archive = Path(name, "code.zip")
        digest = zip_code(root, archive)
        return api.upload(f"_ray_pkg_headrace_{digest[:24]}.zip", archive.read_bytes())


def _end_earlier(api: JobApi, job: str) -> None:
    """End what earlier attempts of this task have left: two must not run at once."""
    task = job.rpartition(".")[0]
    for known in api.jobs():
        other = known.get("submission_id") or ""
        if other.rpartition(".")[0] == task and other != job and known["status"] not in ENDED:
            _log.warning("ending job %s, which an earlier attempt left", other)
            _end(api, other)


def _follow(api: JobApi, job: str) -> tuple[str, str]:
    """Print the job's log as it grows, until it has ended; its status and Ray's message."""
    printed = 0
    seen = time.monotonic()
    while True:
        info = api.info(job)
        text = api.log(job)
        if len(text) > printed:
            sys.stdout.write(text[printed:])
            sys.stdout.flush()
            printed = len(text)
        if info is not None:
            seen = time.monotonic()
            if info["status"] in ENDED:
                return str(info["status"]), " ".join(str(info.get("message") or "").split())[:500]
        elif time.monotonic() - seen > _LOST_S:
            return "LOST", "the cluster no longer knows the job; was its head started anew?"
        # The whole log comes each time, so a long one is asked for less often.
        time.sleep(max(_POLL_S, len(text) / 2**20))


def _end(api: JobApi, job: str) -> None:
    """Stop a job and wait until it has ended, as long as the cluster answers."""
    quick = JobApi(api.address, api.token, patience_s=5)
    began = time.monotonic()
    try:
        while (info := quick.info(job)) is not None and info["status"] not in ENDED:
            quick.stop(job)
            if time.monotonic() - began > _STOP_S:
                _log.warning("job %s did not end within %g s", job, _STOP_S)
                return
            time.sleep(0.5)
    except EngineStartError as error:
        _log.warning("job %s could not be ended: %s", job, error.reason)
