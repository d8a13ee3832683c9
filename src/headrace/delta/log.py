"""The commit files of a table: list them, read them, add one."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from headrace.delta.access import naming_store_errors, with_good_credentials
from headrace.delta.location import filesystem_path, open_filesystem
from headrace.profiles.storage import Storage

Action = dict[str, Any]

_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class TableFiles:
    """The files below a table's root, on local disk or in an S3 store.

    Attributes:
        uri: Absolute path or `s3://` address of the table's root.
        storage: Credentials; they travel with the value, never through the environment.
    """

    uri: str
    storage: Storage

    def filesystem(self) -> pafs.FileSystem:
        """The native file system of this address."""
        return _filesystem(self.uri if "://" in self.uri else "", self.storage.fresh())

    def path(self, relative: str) -> str:
        """The file system's path of a file below the root."""
        return f"{filesystem_path(self.uri)}/{relative}"

    def read(self, relative: str) -> bytes | None:
        """The content of a file, or None when there is none."""

        def whole(filesystem: pafs.FileSystem) -> bytes:
            with filesystem.open_input_stream(self.path(relative)) as stream:
                return bytes(stream.read())

        try:
            return bytes(self._ask(whole))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Names of the files right in a folder, sorted; empty when there is no such folder."""
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        infos = self._ask(lambda filesystem: filesystem.get_file_info(selector))
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.File)

    def delete(self, relative: str) -> None:
        """Delete a file; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._ask(lambda filesystem: filesystem.delete_file(self.path(relative)))

    def create(self, relative: str, content: bytes, *, scratch: str) -> bool:
        """Write a file that must not exist yet, whole or not at all.

        Args:
            relative: The file, below the root.
            content: What to write.
            scratch: A name below the root that no other writer uses; on a local disk the content
                is written there first.

        Returns:
            Whether it was written; False when another writer was first.
        """
        if "://" not in self.uri:
            return _create_local(Path(self.path(relative)), content, Path(self.path(scratch)))
        from headrace.delta.conditional_put import put_if_absent

        with naming_store_errors(self.uri):
            return with_good_credentials(
                self.storage, lambda storage: put_if_absent(storage, self.path(relative), content)
            )

    def _ask(self, work: Callable[[pafs.FileSystem], Any]) -> Any:
        """Ask the file system something, with credentials that are good."""
        address = self.uri if "://" in self.uri else ""
        with naming_store_errors(self.uri):
            return with_good_credentials(
                self.storage, lambda storage: work(_filesystem(address, storage))
            )


@lru_cache(maxsize=8)
def _filesystem(uri: str, storage: Storage) -> pafs.FileSystem:
    """A client per set of credentials, not per call."""
    return open_filesystem(uri, storage)


def _create_local(target: Path, content: bytes, scratch: Path) -> bool:
    for path in (target, scratch):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # Fails when the name is taken, in one step, also between processes.
        target.hardlink_to(scratch)
    except FileExistsError:
        return False
    finally:
        scratch.unlink(missing_ok=True)
    return True


def commit_name(version: int) -> str:
    """Path of a version's commit file, below the table's root."""
    return f"_delta_log/{version:020d}.json"


def commit_versions(files: TableFiles) -> list[int]:
    """Versions whose commit file is still there, ascending."""
    matches = (_COMMIT.fullmatch(name) for name in files.names("_delta_log"))
    return sorted(int(match[1]) for match in matches if match)


def read_commit(files: TableFiles, version: int) -> list[Action] | None:
    """The actions of one commit, or None when there is no such file."""
    content = files.read(commit_name(version))
    if content is None:
        return None
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def commits_after(files: TableFiles, version: int) -> Iterator[tuple[int, list[Action]]]:
    """Commits newer than `version`, in order, as far as they exist now."""
    while (actions := read_commit(files, version + 1)) is not None:
        version += 1
        yield version, actions
