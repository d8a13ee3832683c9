"""Write checkpoints of all kinds by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.handmade import Log

Action = dict[str, Any]

TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_VECTOR = {
    "storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(),
    "sizeInBytes": pa.int32(), "cardinality": pa.int64(),
}  # fmt: skip
ADD = {
    "path": pa.string(), "partitionValues": TEXTS, "size": pa.int64(), "modificationTime": pa.int64(),
    "dataChange": pa.bool_(), "stats": pa.string(), "deletionVector": pa.struct(_VECTOR),
}  # fmt: skip
KINDS: dict[str, dict[str, pa.DataType]] = {
    "txn": {"appId": pa.string(), "version": pa.int64()},
    "add": ADD,
    "remove": {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()},
    "metaData": {
        "id": pa.string(), "format": pa.struct({"provider": pa.string(), "options": TEXTS}),
        "schemaString": pa.string(), "partitionColumns": _NAMES, "configuration": TEXTS,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(),
        "readerFeatures": _NAMES, "writerFeatures": _NAMES,
    },
    "checkpointMetadata": {"version": pa.int64()},
    "sidecar": {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()},
}  # fmt: skip
CLASSIC = ("txn", "add", "remove", "metaData", "protocol")


def file_of(log: Log, name: str) -> Path:
    """A file of the table's log."""
    return log.path / "_delta_log" / name


def drop(log: Log, *versions: int) -> None:
    """Remove commits."""
    for version in versions:
        file_of(log, f"{version:020d}.json").unlink()


def state(log: Log, version: int) -> list[Action]:
    """The actions that make up a version, tombstones included."""
    live: dict[str, Action] = {}
    heads: dict[str, Action] = {}
    gone: list[Action] = []
    for number in range(version + 1):
        for line in file_of(log, f"{number:020d}.json").read_text().splitlines():
            action = json.loads(line)
            kind = next(iter(action))
            if kind == "add":
                live[action["add"]["path"]] = action
            elif kind == "remove":
                live.pop(action["remove"]["path"], None)
                # Far in the future, so that Spark keeps it.
                gone.append({"remove": action["remove"] | {"deletionTimestamp": 4_102_444_800_000}})
            elif kind in ("protocol", "metaData"):
                heads[kind] = action
    return [heads["protocol"], heads["metaData"], *gone, *live.values()]


def write_checkpoint(
    target: Path,
    actions: Iterable[Action],
    *,
    kinds: Sequence[str] = CLASSIC,
    add: Mapping[str, pa.DataType | pa.Field] | None = None,
    **options: Any,
) -> int:
    """Write actions as a Parquet file; gives its size.

    Args:
        target: The file.
        actions: What it holds; those of other kinds are left out.
        kinds: Its columns.
        add: Fields of `add`, when they are to be others.
        options: For Parquet.
    """
    shapes = {**KINDS, "add": {**(add or ADD)}}
    fields = {
        kind: [
            item if isinstance(item, pa.Field) else pa.field(name, item)
            for name, item in shapes[kind].items()
        ]
        for kind in kinds
    }
    rows = [dict.fromkeys(kinds) | _plain(a) for a in actions if next(iter(a)) in kinds]
    target.parent.mkdir(exist_ok=True)
    schema = pa.schema([(kind, pa.struct(fields[kind])) for kind in kinds])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), target, **options)
    return target.stat().st_size


def write_lines(target: Path, actions: Iterable[Action]) -> None:
    """Write actions as lines of JSON."""
    target.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _plain(action: Action) -> Action:
    """An action with pairs instead of objects, which Arrow takes for structs."""
    kind, body = next(iter(action.items()))
    body = dict(body)
    if kind == "add":
        body["partitionValues"] = list((body.get("partitionValues") or {}).items())
    if kind == "metaData":
        body["configuration"] = list(body["configuration"].items())
        body["format"] = {"provider": "parquet", "options": []}
    return {kind: body}
