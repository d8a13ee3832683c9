"""One atomic commit: its actions, the race for the next version, and what to do when it is lost."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from typing import Any

from headrace.delta.guards import Guard, check_writable, writer_features
from headrace.delta.log import Action, commit_name, commits_after, read_commit
from headrace.delta.schema import Struct
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.delta.times import in_commit_time
from headrace.delta.transaction import is_commit_of, lineage_json
from headrace.delta.write_mapping import MAX_ID, with_ids
from headrace.delta.write_modes import Removal, Runner, one_by_one, plan_removal
from headrace.delta.write_plan import WritePlan
from headrace.delta.write_rows import Part
from headrace.delta.write_schema import (
    check_complete,
    evolved,
    protocol_for,
    same_columns,
    schema_json,
    unify,
)
from headrace.exceptions import CommitUnclearError, ConcurrentWriteError, StorageAccessError

_ATTEMPTS = 50
_ROW_IDS = "delta.rowTracking"


@dataclass
class Committer:
    """Commits what the workers wrote.

    Attributes:
        plan: The write.
        parts: What the workers wrote.
        run: Rewrites files for the modes that need it.
    """

    plan: WritePlan
    parts: Sequence[Part]
    run: Runner = one_by_one

    def commit(self) -> int:
        """Make the commit, once.

        Returns:
            The version, which is another attempt's when that one was first with the same key.

        Raises:
            ConcurrentWriteError: Another writer changed what this write depends on.
            CommitUnclearError: The log can't be read after an error.
        """
        plan = self.plan
        schema = unify(plan.request.table, [plan.rows.schema, *(p.schema for p in self.parts)])
        snapshot = plan.snapshot
        if plan.replaces_schema:
            check_complete(plan.request.table, schema)
        for attempt in range(_ATTEMPTS):
            version = 0 if snapshot is None else snapshot.version + 1
            actions = self._actions(snapshot, version, schema)
            if self._put(version, actions):
                return version
            landed = self._landed(version)
            if landed is not None:
                return landed
            snapshot = self._next(snapshot, version, schema)
            # The first ones at once; then writers that hit each other again draw apart.
            time.sleep(random.uniform(0, 0.02) * min(attempt, 20))  # noqa: S311
        raise self._lost(f"{_ATTEMPTS} commits were lost", version, version)

    def _put(self, version: int, actions: Sequence[Action]) -> bool:
        files = self.plan.request.files
        content = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
        try:
            return files.create(
                commit_name(version), content.encode() + b"\n", scratch=self.plan.rows.files.scratch
            )
        except OSError as error:
            if isinstance(error, StorageAccessError) and error.refused:
                raise
            # The store may have taken it although the answer was lost, or take it a moment later.
            try:
                found = read_commit(files, version)
            except OSError as unreadable:
                raise self._unclear(unreadable) from error
            if found is None:
                raise self._unclear(error) from error
            return self._is_mine(found)

    def _is_mine(self, actions: Sequence[Action]) -> bool:
        write_id = self.plan.request.key.write_id
        return any(
            write_id in str(action["commitInfo"].get("userMetadata"))
            for action in actions
            if "commitInfo" in action
        )

    def _landed(self, version: int) -> int | None:
        """The version that has this write already, from `version` on."""
        key = self.plan.request.key
        for found, actions in commits_after(self.plan.request.files, version - 1):
            if any(is_commit_of(action, key) for action in actions):
                return found
        return None

    def _next(self, before: Snapshot | None, lost: int, schema: Struct) -> Snapshot:
        """The version to try again on, if that is right."""
        request = self.plan.request
        after = load_snapshot(request.files.uri, storage=request.files.storage)
        check_writable(request.table, after.protocol, after.metadata, request.mode)
        if before is None:
            same = same_columns(after.schema, schema) and (
                after.partition_columns == self.plan.rows.partition_columns
            )
            if not same or after.mapping_mode != "none" or not _is_plain(after):
                raise self._lost("it created the table in another form", lost - 1, after.version)
        elif after.metadata != before.metadata or after.protocol != before.protocol:
            raise self._lost(
                "it changed the table's schema, properties or features",
                before.version,
                after.version,
            )
        return after

    def _lost(self, problem: str, read: int, found: int) -> ConcurrentWriteError:
        return ConcurrentWriteError(
            table=self.plan.request.table,
            mode=self.plan.request.mode,
            problem=problem,
            read_version=read,
            conflicting_version=found,
        )

    def _unclear(self, error: Exception) -> CommitUnclearError:
        key = self.plan.request.key
        return CommitUnclearError(
            table=self.plan.request.table, problem=str(error), key=key.app_id or key.write_id
        )

    # --- actions ---------------------------------------------------------------------------------

    def _actions(self, snapshot: Snapshot | None, version: int, schema: Struct) -> list[Action]:
        now = int(time.time() * 1000)
        removal = Removal()
        if snapshot is not None:
            removal = plan_removal(self.plan, snapshot, self.parts, self.run)
        for action in removal.removes:
            action["remove"]["deletionTimestamp"] = now
        adds = [action for part in self.parts for action in part.added] + removal.adds
        extra = _row_ids(snapshot, adds, version)
        txn = self.plan.request.key.txn(now)
        return [
            self._info(snapshot, adds, removal, now),
            *self._structure(snapshot, schema, now),
            *([txn] if txn else []),
            *extra,
            *removal.removes,
            *adds,
        ]

    def _structure(self, snapshot: Snapshot | None, schema: Struct, now: int) -> list[Action]:
        """`protocol` and `metaData`, where they change."""
        plan = self.plan
        if snapshot is None:
            about: dict[str, Any] = {
                "id": str(uuid.uuid4()),
                "configuration": {},
                "createdTime": now,
            }
            text: str | None = schema_json(schema)
        else:
            about = {
                "id": snapshot.metadata.id,
                "configuration": dict(snapshot.configuration),
                "createdTime": now,
            }
            about |= {
                name: value
                for name in ("name", "description")
                if (value := getattr(snapshot.metadata, name)) is not None
            }
            replaced = plan.request.schema_mode == "overwrite"
            found = schema if replaced else evolved(snapshot.schema_string, schema)
            if found is not None and snapshot.mapping_mode != "none":
                used = int(snapshot.configuration.get(MAX_ID, 0))
                found, used = with_ids(found, used)
                about["configuration"] |= {MAX_ID: str(used)}
            text = None if found is None else schema_json(found)
        if text is None:
            return []
        about |= {
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": list(plan.rows.partition_columns),
        }
        protocol = protocol_for(schema, None if snapshot is None else snapshot.protocol)
        return [*([protocol] if protocol else []), {"metaData": about}]

    def _info(
        self, snapshot: Snapshot | None, adds: Sequence[Action], removal: Removal, now: int
    ) -> Action:
        request = self.plan.request
        info: dict[str, Any] = {}
        if snapshot is not None and _is_on(snapshot, "delta.enableInCommitTimestamps"):
            info["inCommitTimestamp"] = max(now, self._last_time(snapshot) + 1)
        info |= {
            "timestamp": now,
            "operation": request.operation,
            "operationParameters": request.parameters(self.plan.rows.partition_columns),
            "isolationLevel": "Serializable",
            "isBlindAppend": request.mode == "append",
            "operationMetrics": {
                "numFiles": str(len(adds)),
                "numRemovedFiles": str(len(removal.removes)),
                "numOutputRows": str(sum(part.rows for part in self.parts)),
                "numOutputBytes": str(sum(action["add"]["size"] for action in adds)),
            },
            "engineInfo": f"headrace/{installed_version('headrace')}",
            "txnId": request.key.write_id,
            "userMetadata": lineage_json(request.context, request.key),
        }
        if snapshot is not None:
            info["readVersion"] = snapshot.version
        return {"commitInfo": info}

    def _last_time(self, snapshot: Snapshot) -> int:
        files = self.plan.request.files
        name = commit_name(snapshot.version).removeprefix("_delta_log/")
        return in_commit_time(files.filesystem(), files.uri, name) or 0


def _is_on(snapshot: Snapshot, name: str) -> bool:
    return snapshot.configuration.get(name, "false").lower() == "true"


def _is_plain(snapshot: Snapshot) -> bool:
    """Whether nothing but columns has to be right: no rules that rows were not checked against."""
    return not Guard.of(snapshot.uri, snapshot.metadata).rules


def _row_ids(snapshot: Snapshot | None, adds: Sequence[Action], version: int) -> list[Action]:
    """Give new files their row ids where the table tracks rows."""
    if snapshot is None or "rowTracking" not in writer_features(snapshot.protocol):
        return []
    domain = snapshot.domains.get(_ROW_IDS)
    highest = json.loads(domain["configuration"])["rowIdHighWaterMark"] if domain else -1
    for action in adds:
        add = action["add"]
        add["baseRowId"], add["defaultRowCommitVersion"] = highest + 1, version
        highest += json.loads(add["stats"])["numRecords"]
    configuration = json.dumps({"rowIdHighWaterMark": highest})
    return [
        {"domainMetadata": {"domain": _ROW_IDS, "configuration": configuration, "removed": False}}
    ]
