"""A local Ray cluster of a profile's size, cleaned up afterwards."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headrace.engines.cache import lock_file, short_folder
from headrace.engines.ray_environment import ray_environment
from headrace.exceptions import EngineStartError
from headrace.profiles.models import RayProfile

_log = logging.getLogger("headrace.engines")

_TRIES: Final = 3
_LEAST_STORE_MIB: Final = 80


@contextmanager
def open_ray(
    profile: RayProfile,
    *,
    import_paths: Sequence[Path] = (),
    address: str | None = None,
    folder: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Start a local Ray cluster, connect to it, and end both afterwards.

    Args:
        profile: Its size; `env` of the profile is expected in this process already.
        import_paths: Folders that workers import modules from, such as the project's root.
        address: `HOST:PORT` of a running cluster to connect to instead.
        folder: Ray's temporary folder, with a short path; one is made when left out. It is
            removed at the end.

    Yields:
        What Ray says about the cluster (`address`, `node_id`, `session_dir`, ...).

    Raises:
        EngineStartError: Ray did not start; the text shows the end of its log.
    """
    os.environ.update(ray_environment())
    import ray

    # The token that Ray speaks of is made by itself; there is nothing to do for the user.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    job = ray.job_config.JobConfig(_py_driver_sys_path=[str(path) for path in import_paths])
    quiet = {"log_to_driver": True, "logging_level": logging.WARNING, "job_config": job}
    if address:
        context = ray.init(address=address, **quiet)
        try:
            yield dict(context.address_info)
        finally:
            ray.shutdown()
        return
    with _temp_folder(folder) as temp:
        info = _start(profile, temp, quiet)
        try:
            yield info
        finally:
            ray.shutdown()


def ray_settings(profile: RayProfile) -> dict[str, Any]:
    """Arguments of `ray.init` for a cluster of the profile's size."""
    store_mib = object_store_mib(profile)
    return {
        "num_cpus": profile.cores,
        "num_gpus": profile.gpus,
        "resources": dict(profile.resources),
        "object_store_memory": store_mib * 2**20,
        "_memory": max(1, profile.memory_mib - store_mib) * 2**20,
        "include_dashboard": profile.dashboard,
        "dashboard_host": "127.0.0.1",
        "_node_ip_address": "127.0.0.1",
    }


def object_store_mib(profile: RayProfile) -> int:
    """Shared memory for the object store: as the profile says, or a quarter of its memory."""
    return profile.object_store_mib or max(_LEAST_STORE_MIB, profile.memory_mib // 4)


def _start(profile: RayProfile, folder: Path, quiet: dict[str, Any]) -> dict[str, Any]:
    import ray

    reason = tail = ""
    for number in range(1, _TRIES + 1):
        try:
            # Two clusters that start at once take each other's ports and time.
            with (
                lock_file(Path(tempfile.gettempdir()) / f"headrace-ray-{os.getuid()}.lock"),
                _python_for_workers(folder),
            ):
                context = ray.init(
                    address="local", _temp_dir=str(folder), **ray_settings(profile), **quiet
                )
            return dict(context.address_info)
        except Exception as error:  # noqa: BLE001  Ray raises many kinds here, RuntimeError too
            ray.shutdown()
            reason, tail = str(error).strip(), _raylet_log(folder)
            _log.warning("Ray did not start (try %d of %d): %s", number, _TRIES, reason)
            time.sleep(number)
    raise EngineStartError(engine="Ray", reason=reason, tail=tail)


@contextmanager
def _python_for_workers(folder: Path) -> Iterator[None]:
    """Name a Python whose path Ray can start workers by, for the length of the block.

    Ray hands `sys.executable` to a shell without quotes: with a space in it (a project's `.venv` in
    `My Project/`) no worker ever comes. A link in Ray's own folder leads there without one.
    """
    python = Path(sys.executable)
    if shlex.quote(sys.executable) == sys.executable:
        yield
        return
    link = folder / "python"
    if not link.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
        link.symlink_to(python.parents[1], target_is_directory=True)
    sys.executable = str(link / python.relative_to(python.parents[1]))
    try:
        yield
    finally:
        sys.executable = str(python)


def _raylet_log(folder: Path) -> str:
    logs = sorted(folder.glob("session_2*/logs/raylet.err"), key=lambda path: path.stat().st_mtime)
    text = logs[-1].read_text(errors="replace") if logs else ""
    return "\n".join(text.strip().splitlines()[-20:])


@contextmanager
def _temp_folder(folder: Path | None) -> Iterator[Path]:
    folder = folder or short_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
