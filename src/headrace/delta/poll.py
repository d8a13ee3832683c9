"""Notices new versions of a table at the price of one `stat` per look."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import Any, Final

from pyarrow import fs

from headrace.delta.location import filesystem_path, normal_uri, open_filesystem
from headrace.delta.log import TableFiles, commit_name, read_commit
from headrace.delta.segments import list_log, log_path
from headrace.delta.snapshot import load_snapshot
from headrace.exceptions import TableNotFoundError
from headrace.profiles.storage import Storage

# A folder that changed a moment ago may change again within the same tick of its clock.
_RACY_NS: Final = 2_000_000_000
_FULL_LOOK_S: Final = 60.0
_READ_BACK: Final = 20


@dataclass(frozen=True)
class LogState:
    """The newest version of a table.

    Attributes:
        id: The table's id; a table that was made anew at the same place has another.
        version: Delta version.
    """

    id: str
    version: int


@dataclass
class TablePoll:
    """Watches one table.

    On local disk a look is one `stat` of the log's folder, and a second one when that has changed.
    In an S3 store it is one request. The log is listed when the newest commit is no longer the
    file that it was (the table was made anew, restored from a copy, or its log cleaned up), and
    once a minute in an S3 store.

    Args:
        uri: Absolute path or address of the table's root.
        storage: Credentials and endpoint.
    """

    uri: str
    storage: Storage = field(default_factory=Storage)
    _state: LogState | None = None
    _folder: tuple[int, int] | None = None
    _commit: tuple[int, int, int] | None = None
    _listed_at: float = 0.0
    _answers: dict[tuple[int, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uri = normal_uri(self.uri)
        self._is_local = "://" not in self.uri
        self._log = log_path(self.uri)
        self._files = TableFiles(self.uri, self.storage)

    def look(self) -> LogState | None:
        """The newest version, or None while there is no table."""
        return self._look_local() if self._is_local else self._look_remote()

    def changes_rows(self, after: int) -> bool:
        """Whether the versions after `after` add, change or remove rows.

        Optimising, vacuuming and changed properties don't. Commits that are gone count as a change.
        """
        state = self._state
        if state is None or after >= state.version:
            return False
        known = self._answers.get((after, state.version))
        if known is None:
            known = self._changes_rows(after, state.version)
            self._answers = {(after, state.version): known}
        return known

    def _look_local(self) -> LogState | None:
        try:
            seen = os.stat(self._log)  # noqa: PTH116 - this is what a look costs
        except OSError:
            self._state = self._folder = self._commit = None
            return None
        folder = (seen.st_ino, seen.st_mtime_ns)
        if folder == self._folder:
            return self._state
        self._state = self._advance() or self._read_log()
        racy = abs(time.time_ns() - seen.st_mtime_ns) < _RACY_NS
        self._folder = None if racy else folder
        return self._state

    def _look_remote(self) -> LogState | None:
        if time.monotonic() - self._listed_at > _FULL_LOOK_S or self._state is None:
            self._state = self._read_log()
            self._listed_at = time.monotonic()
        else:
            self._state = self._follow(self._state)
        return self._state

    def _advance(self) -> LogState | None:
        """Follow the log from the newest commit that is known, if that is still the same file."""
        state = self._state
        if state is None or self._commit is None or self._stat(state.version) != self._commit:
            return None
        return self._follow(state)

    def _follow(self, state: LogState) -> LogState:
        version, table_id = state.version, state.id
        while self._has(version + 1):
            version += 1
            table_id = _metadata_id(read_commit(self._files, version) or []) or table_id
        if version != state.version:
            self._commit = self._stat(version)
            return LogState(table_id, version)
        return state

    def _read_log(self) -> LogState | None:
        self._answers = {}
        filesystem = open_filesystem(self.uri, self.storage)
        try:
            listing = list_log(filesystem, self.uri)
        except TableNotFoundError:
            return None
        version = listing.latest
        self._commit = self._stat(version)
        for back in range(version, max(-1, version - _READ_BACK), -1):
            if back not in listing.commits:
                break
            found = _metadata_id(read_commit(self._files, back) or [])
            if found:
                return LogState(found, version)
        return LogState(load_snapshot(self.uri, storage=self.storage).metadata.id, version)

    def _has(self, version: int) -> bool:
        path = f"{filesystem_path(self.uri)}/{commit_name(version)}"
        if self._is_local:
            return os.path.exists(path)  # noqa: PTH110
        [info] = open_filesystem(self.uri, self.storage).get_file_info([path])
        return bool(info.type == fs.FileType.File)

    def _stat(self, version: int) -> tuple[int, int, int] | None:
        if not self._is_local:
            return None
        try:
            seen = os.stat(f"{self.uri}/{commit_name(version)}")  # noqa: PTH116
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def _changes_rows(self, after: int, upto: int) -> bool:
        for version in range(after + 1, upto + 1):
            actions = read_commit(self._files, version)
            if actions is None or any(_changes(action) for action in actions):
                return True
        return False


def _metadata_id(actions: list[dict[str, Any]]) -> str | None:
    for action in actions:
        if "metaData" in action:
            return str(action["metaData"].get("id") or json.dumps(action["metaData"]))
    return None


def _changes(action: dict[str, Any]) -> bool:
    if "cdc" in action:
        return True
    for kind in ("add", "remove"):
        if kind in action:
            return bool(action[kind].get("dataChange", True))
    return False
