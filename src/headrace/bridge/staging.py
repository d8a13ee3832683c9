"""Staging tables: where a DataFrame waits to be read by Ray."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from pyarrow import fs

from headrace.context import TaskContext, current_context, inside_task
from headrace.delta.location import delete_folder, filesystem_path, open_filesystem
from headrace.profiles.storage import Storage

_FOLDER = "_headrace/staging"
# One name for what this process stages outside of a run.
_LOCAL = f"local-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def new_staging_table() -> str:
    """The address of a staging table that does not exist yet.

    Its folder carries the run's id. Outside of a run it is removed when the process ends.
    """
    context = current_context()
    run = context.run_id if inside_task() else _LOCAL
    if run == _LOCAL:
        _remove_at_exit(context)
    task = re.sub(r"[^\w.=-]+", "_", context.task)
    return context.table_uri(f"{_FOLDER}/{run}/{task}-{uuid.uuid4().hex[:12]}")


def stage_file(path: Path) -> str:
    """Where Spark reads a file of this machine: itself, or a copy beside a lake in a store.

    The workers of a cluster see no file of this machine. The copy is removed when the run is over.

    Args:
        path: The file.
    """
    context = current_context()
    if not context.lake.startswith("s3://"):
        return str(path)
    target = f"{new_staging_table()}-{path.name}"
    filesystem = open_filesystem(target, context.storage)
    with path.open("rb") as source, filesystem.open_output_stream(filesystem_path(target)) as copy:
        shutil.copyfileobj(source, copy, 2**20)
    return f"s3a://{filesystem_path(target)}"


def remove_staging(
    run_id: str | None = None,
    *,
    older_than: timedelta | None = None,
    lake: str | None = None,
    storage: Storage | None = None,
) -> list[str]:
    """Remove staging tables: those of a run, or those that nothing has written to for a while.

    Args:
        run_id: The run that is over.
        older_than: Remove the folders whose newest file is older than this.
        lake: The lake; that of the current context by default.
        storage: Its storage.

    Returns:
        Names of the runs whose folders were removed.
    """
    context = current_context()
    root = f"{(lake or context.table_uri('_')[:-2]).rstrip('/')}/{_FOLDER}"
    filesystem = open_filesystem(root, storage or context.storage)
    path = filesystem_path(root)
    folders = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    removed = []
    for folder in folders:
        is_of_run = run_id is not None and folder.base_name == run_id
        is_old = older_than is not None and _is_older(filesystem, folder.path, older_than)
        if folder.type == fs.FileType.Directory and (is_of_run or is_old):
            delete_folder(filesystem, folder.path)
            removed.append(folder.base_name)
    return sorted(removed)


def _is_older(filesystem: fs.FileSystem, path: str, age: timedelta) -> bool:
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    times = [info.mtime for info in infos if info.type == fs.FileType.File and info.mtime]
    return not times or max(times) < datetime.now(UTC) - age


_registered: set[str] = set()


def _remove_at_exit(context: TaskContext) -> None:
    lake = context.table_uri("_")[:-2]
    if lake not in _registered:
        _registered.add(lake)
        atexit.register(partial(remove_staging, _LOCAL, lake=lake, storage=context.storage))
