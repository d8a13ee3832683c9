"""Changes of a table as a request, and where a task's last successful run of them ended."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headrace.bridge.source import Request
from headrace.context import Lineage, TaskContext, current_context
from headrace.delta.changes import load_changes
from headrace.delta.location import filesystem_path, normal_uri, open_filesystem
from headrace.delta.snapshot import Snapshot
from headrace.exceptions import ReadRequestError
from headrace.tables import TableRef

if TYPE_CHECKING:
    from pyarrow import fs

# The mode under which a read of changes is kept among a task's reads.
CHANGES_MODE = "changes"


def change_request(snapshot: Snapshot, ref: TableRef, since: int | str) -> Request:
    """A request for the changes after a version.

    Args:
        snapshot: The pinned version.
        ref: Its reference; noted among the task's reads as read up to here.
        since: A version, or `"last"`.

    Raises:
        ReadRequestError: `since` is neither.
    """
    context = current_context()
    if since == "last":
        found = last_version(context, snapshot.uri)
        start = -1 if found is None else found
        context.reads.append(Lineage(ref=ref, mode=CHANGES_MODE))
    elif isinstance(since, int) and not isinstance(since, bool) and since >= -1:
        start = since
    else:
        raise ReadRequestError(
            problem=f"changes_since={since!r} is no version.",
            found='A version, or "last" for the last successful run of this task.',
            fix="from_delta(table, changes_since=5)",
        )
    changes = load_changes(snapshot, start)
    return Request(changes.spec, changes.files, snapshot.metadata)


def last_version(context: TaskContext, uri: str) -> int | None:
    """The version up to which this task has worked through a table's changes, or None."""
    # In a pipeline the ledger knows; a file remembers for a task that is run by hand.
    known = {normal_uri(table): version for table, version in context.cursors.items()}
    found = known.get(normal_uri(uri))
    return _stored(context).get(normal_uri(uri)) if found is None else found


def save_cursors(context: TaskContext | None = None) -> None:
    """Note how far the task has read its tables' changes. Call it when the task has succeeded."""
    known = context or current_context()
    done = {item.ref.uri: item.ref.version for item in known.reads if item.mode == CHANGES_MODE}
    if not done:
        return
    content = json.dumps({**_stored(known), **done}, indent=1, sort_keys=True).encode()
    filesystem, path = _place(known)
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(content)


def _stored(context: TaskContext) -> dict[str, int]:
    filesystem, path = _place(context)
    try:
        with filesystem.open_input_stream(path) as stream:
            return dict(json.loads(stream.read()))
    except FileNotFoundError:
        return {}


def _place(context: TaskContext) -> tuple[fs.FileSystem, str]:
    """The cursor file of a task, next to the lake's tables."""
    names = [context.pipeline, context.task, *([context.key] if context.key else [])]
    name = "-".join(re.sub(r"[^\w.=]+", "_", item) for item in names)
    address = context.table_uri(f"_headrace/cursors/{name}.json")
    return open_filesystem(address, context.storage), filesystem_path(address)
