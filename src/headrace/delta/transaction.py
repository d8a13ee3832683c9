"""Exactly once: a write's key as Delta's `txn` action, and the lineage that its commit carries."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from headrace.context import TaskContext, inside_task
from headrace.delta.log import Action, TableFiles, commit_name, commit_versions
from headrace.delta.segments import list_log
from headrace.exceptions import CommitExpiredError

TXN_VERSION = 1
"""Every key is written once, so its application has one version only."""

_THREADS = 16
_BATCH = 64

FILE_PREFIX = "hr-"
"""Data files of keyed writes start with it: `hr-<hash of the key>-...`."""


@dataclass(frozen=True, kw_only=True)
class WriteKey:
    """Tells one write from every other one, over all attempts of it.

    Attributes:
        parts: What the caller gave: usually the run and the task. Empty for a write without a key.
        write_id: Differs between attempts; it finds this attempt's commit in the log.
    """

    parts: tuple[str, ...] = ()
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def app_id(self) -> str | None:
        """Application id of the `txn` action, or None when the write has no key."""
        if not self.parts:
            return None
        # A separator inside a part must not make two keys look alike.
        return "headrace:" + ":".join(
            part.replace("%", "%25").replace(":", "%3A") for part in self.parts
        )

    @property
    def file_prefix(self) -> str:
        """Start of the names of this write's data files; a rerun finds its orphans by it."""
        seed = self.app_id or self.write_id
        return f"{FILE_PREFIX}{hashlib.sha256(seed.encode()).hexdigest()[:20]}"

    def txn(self, now_ms: int) -> Action | None:
        """The `txn` action to commit, or None when the write has no key."""
        if self.app_id is None:
            return None
        return {"txn": {"appId": self.app_id, "version": TXN_VERSION, "lastUpdated": now_ms}}


def resolve_key(key: tuple[str, ...] | None, *, uri: str, context: TaskContext) -> WriteKey:
    """The key of a write: the caller's, else the task's, else none.

    A task that writes the same table several times gets an ordinal, in the order of its writes, so
    that the second write is not taken for a repetition of the first.
    """
    if key is not None:
        return WriteKey(parts=tuple(str(part) for part in key))
    if not inside_task():
        return WriteKey()
    ordinal = sum(written.ref.uri == uri for written in context.writes)
    return WriteKey(parts=(*context.write_key(), *([f"write-{ordinal}"] if ordinal else [])))


def lineage(context: TaskContext, key: WriteKey) -> dict[str, Any]:
    """Who writes, from what: the JSON that `DESCRIBE HISTORY` shows as `userMetadata`."""
    return {
        "headrace": {
            "run": context.run_id,
            "pipeline": context.pipeline,
            "task": context.task,
            "item": context.key,
            "attempt": context.attempt,
            "mlflow_run": context.mlflow_run_id,
            "write_id": key.write_id,
            "inputs": [
                {"table": seen.ref.name, "uri": seen.ref.uri, "version": seen.ref.version}
                for seen in context.reads
            ],
            **({"models": list(context.models)} if context.models else {}),
        }
    }


def lineage_json(context: TaskContext, key: WriteKey) -> str:
    """`lineage` as one line of JSON."""
    return json.dumps(lineage(context, key), separators=(",", ":"))


def find_commit(files: TableFiles, key: WriteKey) -> int | None:
    """The version that a write made, or None when its commit is not in the log.

    Found by the key's `txn` action, or by this attempt's id in the lineage.

    Args:
        files: The table.
        key: The write.

    Raises:
        CommitExpiredError: A checkpoint knows the key, but its commit has been cleaned up.
    """
    versions = commit_versions(files)
    word = _word(key)
    with ThreadPoolExecutor(_THREADS) as pool:
        # Newest first, some at a time: a rerun usually finds its key in the last few commits.
        for at in range(len(versions), 0, -_BATCH):
            batch = versions[max(at - _BATCH, 0) : at][::-1]
            for version, content in zip(
                batch, pool.map(files.read, map(commit_name, batch)), strict=True
            ):
                if content and word in content and _holds(content, key):
                    return version
    if versions and versions[0] > 0 and key.app_id in checkpointed_keys(files):
        raise CommitExpiredError(table=files.uri, key=str(key.app_id), oldest=versions[0])
    return None


def _word(key: WriteKey) -> bytes:
    """What the commit's bytes must hold; it spares parsing every commit."""
    return json.dumps(key.app_id)[1:-1].encode() if key.app_id else key.write_id.encode()


def _holds(content: bytes, key: WriteKey) -> bool:
    lines = (line for line in content.splitlines() if line.strip())
    return any(is_commit_of(json.loads(line), key) for line in lines)


def checkpointed_keys(files: TableFiles) -> set[str]:
    """The application ids that the newest checkpoint knows."""
    filesystem = files.filesystem()
    listing = list_log(filesystem, files.uri)
    if not listing.checkpoints:
        return set()
    names = [f"_delta_log/{name}" for name in listing.checkpoints[-1].names]
    return {key for name in names for key in _keys_in(files, name)}


def _keys_in(files: TableFiles, name: str) -> Iterator[str]:
    if name.endswith(".json"):
        for line in (files.read(name) or b"").splitlines():
            if b'"txn"' in line:
                yield json.loads(line)["txn"]["appId"]
        return
    with files.filesystem().open_input_file(files.path(name)) as source:
        file = pq.ParquetFile(source)
        if "txn" in file.schema_arrow.names:
            found = file.read(columns=["txn.appId"])["txn"].to_pylist()
            yield from (item["appId"] for item in found if item and item["appId"])


def is_commit_of(action: Action, key: WriteKey) -> bool:
    """Whether an action says that its commit is the write with this key, or this very attempt."""
    if "txn" in action:
        return key.app_id is not None and action["txn"]["appId"] == key.app_id
    return "commitInfo" in action and key.write_id in str(action["commitInfo"].get("userMetadata"))
