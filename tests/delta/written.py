"""Write and read a table without an engine: what a worker and a driver do, in one process."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # noqa: TC002

from headrace.context import TaskContext
from headrace.delta.arrow import read_snapshot
from headrace.delta.arrow_write import write_arrow
from headrace.delta.log import TableFiles, commit_versions, read_commit
from headrace.delta.snapshot import load_snapshot
from headrace.profiles.storage import Storage
from headrace.tables import TableRef


def rows_of(ref: TableRef) -> pa.Table:
    """All rows of a version."""
    return read_snapshot(load_snapshot(ref.uri, version=ref.version))


def data_files(uri: str | Path) -> set[str]:
    """Every file below a table's root, without the log."""
    root = Path(uri)
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(p.relative_to(root)) for p in found if "_delta_log" not in p.parts}


def live_files(uri: str | Path) -> set[str]:
    """The files that some commit of the table refers to, as they are on disk."""
    from urllib.parse import unquote

    files = TableFiles(str(uri), Storage())
    actions = (a for v in commit_versions(files) for a in read_commit(files, v) or ())
    return {unquote(action["add"]["path"]) for action in actions if "add" in action}


__all__ = ["TaskContext", "data_files", "live_files", "rows_of", "write_arrow"]
