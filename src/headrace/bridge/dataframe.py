"""From a Spark DataFrame, classic or Connect, to a Delta table version that holds its rows.

Only public methods are used, so that a Connect session works the same and no JVM object is
touched.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any
from urllib.parse import unquote

from headrace.bridge.staging import new_staging_table
from headrace.context import current_context
from headrace.delta.location import normal_uri, resolve_file
from headrace.delta.schema import Struct, parse_schema
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.exceptions import HeadraceError, ReadRequestError
from headrace.tables import TableRef

_ODD_NAME = re.compile(r"[ ,;{}()\n\t=]")
_SCAN = re.compile(r"^FileScan parquet .*Batched: ")
# A projection of bare columns: partition columns come last in a scan and are put in place. A
# renamed or computed column would have an AS.
_REORDER = re.compile(r"^Project \[[^\s,\[\]#]+#\d+L?(, [^\s,\[\]#]+#\d+L?)*\]$")
_STAGE = re.compile(r"^\*?\(\d+\) ")


def table_of(frame: Any) -> tuple[TableRef, list[str]]:
    """A pinned table version with the DataFrame's rows, and the DataFrame's columns.

    A DataFrame that surely is nothing but a scan of a Delta table's newest version is that
    version; any other is written once to a staging table.

    Raises:
        ReadRequestError: The value is no DataFrame, or Spark can't write it.
    """
    if not (hasattr(frame, "write") and hasattr(frame, "schema") and hasattr(frame, "columns")):
        raise ReadRequestError(
            problem=f"from_spark got a {type(frame).__name__}.",
            found="A TableRef, a table's name or path, or a Spark DataFrame.",
            fix='from_spark("flights")',
        )
    snapshot = scanned_table(frame)
    ref = snapshot.ref() if snapshot is not None else stage(frame)
    return ref, list(frame.columns)


def stage(frame: Any) -> TableRef:
    """Write a DataFrame to a new staging table, by its own session.

    Raises:
        ReadRequestError: Spark can't write it as a table.
    """
    address = new_staging_table()
    writer = frame.write.format("delta")
    if any(_ODD_NAME.search(name) for name in _all_names(frame)):
        writer = writer.option("delta.columnMapping.mode", "name")
    target = f"s3a://{address.removeprefix('s3://')}" if "://" in address else address
    try:
        writer.save(target)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ReadRequestError(
            problem=f"Spark can't hand the DataFrame over: {reason}",
            found=f"It is written once, to {address}.",
            fix="give every column its own name and a type that a Delta table can hold",
        ) from error
    return load_snapshot(address, storage=current_context().storage).ref()


def scanned_table(frame: Any) -> Snapshot | None:
    """The table version that a DataFrame is a plain scan of, or None when that isn't sure.

    It is one when the physical plan is a single Parquet scan without filters, its files are
    exactly those of the newest version of the Delta table that they lie in, that table never has
    deletion vectors (another version could have the same files and other rows), and the columns
    have the table's names and types.
    """
    if not _is_plain_scan(_explained(frame)):
        return None
    files = [str(name) for name in frame.inputFiles()]
    root = _common_table(files)
    if root is None:
        return None
    try:
        snapshot = load_snapshot(root, storage=current_context().storage)
    except HeadraceError:
        return None
    if "deletionVectors" in snapshot.protocol.reader_features:
        return None
    known = {resolve_file(snapshot.uri, path) for path in snapshot.files["path"].to_pylist()}
    if {_local(name) for name in files} != known or not _same_columns(frame, snapshot):
        return None
    return snapshot


def _explained(frame: Any) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain()
    return text.getvalue()


def _is_plain_scan(plan: str) -> bool:
    """Whether a physical plan is one unfiltered scan, with nothing on it but a change of layout."""
    lines = [line.strip() for line in plan.splitlines() if line.strip()]
    steps = [
        _STAGE.sub("", line.removeprefix("+- ")) for line in lines if not line.startswith("==")
    ]
    steps = [step for step in steps if step != "ColumnarToRow" and not _REORDER.match(step)]
    if len(steps) != 1 or not _SCAN.match(steps[0]):
        return False
    scan = steps[0]
    return all(
        f"{name}: []" in scan for name in ("DataFilters", "PartitionFilters", "PushedFilters")
    )


def _common_table(files: list[str]) -> str | None:
    """The Delta table that the files lie in, or None when it isn't one."""
    from pyarrow import fs

    from headrace.delta.location import filesystem_path, open_filesystem

    if not files:
        return None
    address = _local(files[0])
    filesystem = open_filesystem(address, current_context().storage)
    folder = address.rpartition("/")[0]
    while folder.count("/") > (3 if "://" in folder else 0):
        found = filesystem.get_file_info(f"{filesystem_path(folder)}/_delta_log")
        if found.type == fs.FileType.Directory:
            return folder
        folder = folder.rpartition("/")[0]
    return None


def _local(name: str) -> str:
    """A file that Spark names, as an address of ours."""
    match = re.match(r"^(\w+):(.*)$", name, re.DOTALL)
    if match is None:
        return name
    if match[1] == "file":
        return "/" + unquote(match[2]).lstrip("/")
    return normal_uri(f"{match[1]}:{unquote(match[2])}")


def _same_columns(frame: Any, snapshot: Snapshot) -> bool:
    """Whether every column is the table's column of that name, type and all."""
    wanted = parse_schema(frame.schema.json())
    for child in wanted.fields:
        found = [item for item in snapshot.schema.fields if item.name == child.name]
        if not found or _shape(Struct((found[0],))) != _shape(Struct((child,))):
            return False
    names = [child.name for child in wanted.fields]
    return len(set(names)) == len(names)


def _shape(schema: Struct) -> str:
    from headrace.delta.types import arrow_schema

    return str(arrow_schema(schema))


def _all_names(frame: Any) -> list[str]:
    from headrace.delta.schema import walk_fields

    return [child.name for child in walk_fields(parse_schema(frame.schema.json()))]
