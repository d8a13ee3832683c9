"""The commits of a table, newest first, with who made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.delta.location import normal_uri, open_filesystem
from headrace.delta.log import TableFiles, read_commit
from headrace.delta.segments import list_log
from headrace.delta.times import commit_times, format_time
from headrace.profiles.storage import Storage


@dataclass(frozen=True)
class Commit:
    """One version of a table, as its log tells it.

    Attributes:
        version: The version.
        time: When it was made, ISO 8601 in UTC.
        operation: `WRITE`, `MERGE`, `OPTIMIZE`, ...; empty when the commit doesn't say.
        mode: `Append`, `Overwrite`, or an empty text.
        rows: Rows that the operation wrote, when it says so.
        engine: What wrote it, as it calls itself.
        run: The headrace run that wrote it, or None.
        task: Its task, with the for-each item behind a slash.
        attempt: Its attempt.
        inputs: What the task had read by then: `flights@v3`.
        models: Models that made the rows: `models:/flight-delay/3`.
    """

    version: int
    time: str
    operation: str = ""
    mode: str = ""
    rows: int | None = None
    engine: str = ""
    run: str | None = None
    task: str | None = None
    attempt: int | None = None
    inputs: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


def load_history(uri: str, *, storage: Storage | None = None, limit: int = 20) -> list[Commit]:
    """Read the newest commits of a table.

    Commits whose log file has been cleaned up are left out.

    Args:
        uri: Absolute path or address of the table's root.
        storage: Credentials and endpoint.
        limit: How many commits, at most.

    Raises:
        TableNotFoundError: There is no Delta log there.
    """
    root, storage = normal_uri(uri), storage or Storage()
    filesystem = open_filesystem(root, storage)
    listing = list_log(filesystem, root)
    versions = sorted(listing.commits, reverse=True)[:limit]
    times = commit_times(filesystem, root, listing, first=min(versions, default=0))
    files = TableFiles(root, storage)
    return [
        parse_commit(version, read_commit(files, version) or [], times.get(version))
        for version in versions
    ]


def parse_commit(version: int, actions: list[dict[str, Any]], time_ms: int | None) -> Commit:
    """Make a `Commit` of a version's actions."""
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None) or {}
    parameters = info.get("operationParameters") or {}
    who = _lineage(info)
    item = who.get("item")
    return Commit(
        version=version,
        time=format_time(time_ms if time_ms is not None else int(info.get("timestamp") or 0)),
        operation=str(info.get("operation") or ""),
        mode=str(parameters.get("mode") or ""),
        rows=_rows(info.get("operationMetrics") or {}),
        engine=str(info.get("engineInfo") or info.get("clientVersion") or ""),
        run=who.get("run"),
        task=f"{who['task']}/{item}" if item else who.get("task"),
        attempt=who.get("attempt"),
        inputs=[
            f"{read.get('table') or read.get('uri')}@v{read.get('version')}"
            for read in who.get("inputs") or ()
        ],
        models=list(who.get("models") or ()),
    )


def _lineage(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """What headrace's own writers leave in `userMetadata`; other writers leave other things."""
    try:
        found = json.loads(info.get("userMetadata") or "{}")
    except (TypeError, ValueError):
        return {}
    own = found.get("headrace") if isinstance(found, dict) else None
    return own if isinstance(own, dict) else {}


def _rows(metrics: Mapping[str, Any]) -> int | None:
    for name in ("numOutputRows", "num_added_rows", "numTargetRowsInserted"):
        value = metrics.get(name)
        if value is not None and str(value).isdecimal():
            return int(value)
    return None
