"""Inside a job on a Ray cluster: read the spec beside the lake, run the task, write the outcome."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.engines.job_folder import JobFolder, attached_files
from headrace.engines.ray_job import JOB_VARIABLE
from headrace.engines.spec import AttemptSpec
from headrace.engines.task_process import EXIT_FAILED, describe_error, perform, set_up_streams
from headrace.engines.versions import compare_versions, own_versions
from headrace.exceptions import VersionMismatchError
from headrace.profiles.storage import Storage

# The cluster's own variables go before what a run brings: addresses differ inside and outside.
_STORAGE: Final = {
    "HEADRACE_STORAGE_ENDPOINT": "endpoint",
    "HEADRACE_STORAGE_ACCESS_KEY": "access_key",
    "HEADRACE_STORAGE_SECRET_KEY": "secret_key",
    "HEADRACE_STORAGE_SESSION_TOKEN": "session_token",
}
_OWN: Final = {
    "HEADRACE_MLFLOW_TRACKING_URI": ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"),
}


def run_sent_task() -> int:
    """Run the task that the variable HEADRACE_JOB points to; 0 when it succeeded."""
    set_up_streams()
    sent = json.loads(os.environ[JOB_VARIABLE])
    storage = own_storage(sent["storage"], os.environ)
    for variable, names in _OWN.items():
        if variable in os.environ:
            os.environ.update(dict.fromkeys(names, os.environ[variable]))
    folder = JobFolder(sent["lake"], sent["job"], storage)
    with tempfile.TemporaryDirectory(prefix="headrace-job-") as scratch:
        result = _run(folder, storage, Path(scratch))
        for number, item in enumerate(attached_files(result)):
            item["path"] = folder.put_file(Path(item["path"]), number)
    folder.write("result.json", result)
    return 0 if result["ok"] else EXIT_FAILED


def own_storage(sent: Mapping[str, Any], environment: Mapping[str, str]) -> Storage:
    """The storage as this cluster reaches it, with the credentials that it has itself."""
    own = {
        name: environment[variable]
        for variable, name in _STORAGE.items()
        if variable in environment
    }
    return Storage.model_validate({**sent, **own})


def _run(folder: JobFolder, storage: Storage, scratch: Path) -> dict[str, Any]:
    told = folder.read("spec.json")
    versions = told.pop("versions")
    try:
        compare_versions(
            versions, own_versions(tuple(versions)), cluster="Ray", needed=("headrace", "ray")
        )
    except VersionMismatchError as error:
        return describe_error(error, "setup")
    spec = AttemptSpec.model_validate({**told, "storage": storage.model_dump()})
    root = Path.cwd()
    spec.storage, spec.address = storage, "auto"
    spec.root, spec.folder, spec.scratch = root, scratch, scratch
    file = root / spec.function.file
    spec.function = spec.function.model_copy(update={"file": file})
    os.environ.update(spec.profile.resolve_env(root))
    return perform(spec)
