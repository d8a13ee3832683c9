"""Exactly once: a write's key as Delta's `txn` action, and the lineage that its commit carries."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from headrace.context import TaskContext, inside_task
from headrace.delta.log import Action, TableFiles, commit_versions, read_commit

TXN_VERSION = 1
"""Every key is written once, so its application has one version only."""

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
        }
    }


def lineage_json(context: TaskContext, key: WriteKey) -> str:
    """`lineage` as one line of JSON."""
    return json.dumps(lineage(context, key), separators=(",", ":"))


def find_commit(files: TableFiles, key: WriteKey, *, since: int = 0) -> int | None:
    """The version that a write made, or None when its commit is not in the log.

    Found by the key's `txn` action, or by this attempt's id in the lineage.

    Args:
        files: The table.
        key: The write.
        since: Oldest version to look at.
    """
    for version in reversed(commit_versions(files)):
        if version < since:
            break
        if any(is_commit_of(action, key) for action in read_commit(files, version) or ()):
            return version
    return None


def is_commit_of(action: Action, key: WriteKey) -> bool:
    """Whether an action says that its commit is the write with this key, or this very attempt."""
    if "txn" in action:
        return key.app_id is not None and action["txn"]["appId"] == key.app_id
    return "commitInfo" in action and key.write_id in str(action["commitInfo"].get("userMetadata"))
