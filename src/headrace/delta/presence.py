"""Whether the files of a pinned version are still there, without reading one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyarrow import fs

from headrace.delta.access import naming_store_errors
from headrace.delta.deletion_vectors import vector_address
from headrace.delta.location import filesystem_path, open_filesystem, resolve_file
from headrace.delta.snapshot import Snapshot, load_snapshot
from headrace.profiles.storage import Storage

_ONE_BY_ONE: Final = 500
"""Up to so many files are asked for by name; for more, a listing of the table costs less."""


def find_missing_file(uri: str, version: int, *, storage: Storage | None = None) -> str | None:
    """The address of a file that a version of a table needs and that is gone; None: all are there.

    Args:
        uri: Absolute path or address of the table's root.
        version: The version.
        storage: Credentials and endpoint.

    Raises:
        TableNotFoundError, VersionNotFoundError, LogIncompleteError: The version can't be had from
            the log any more.
        StorageAccessError: A store refuses the credentials, or does not answer.
    """
    known = storage or Storage()
    snapshot = load_snapshot(uri, version=version, storage=known)
    with naming_store_errors(snapshot.uri):
        filesystem = open_filesystem(snapshot.uri, known)
        wanted = {filesystem_path(address): address for address in _addresses(snapshot)}
        left = sorted(wanted)
        if len(left) > _ONE_BY_ONE:
            left = sorted(wanted.keys() - _listed(filesystem, snapshot.uri))
        for info in filesystem.get_file_info(left):
            if info.type == fs.FileType.NotFound:
                return wanted[info.path]
    return None


def _addresses(snapshot: Snapshot) -> Iterator[str]:
    """Data files and the files of deletion vectors."""
    files = snapshot.files.select(["path", "dv"])
    for path, vector in zip(files["path"].to_pylist(), files["dv"].to_pylist(), strict=True):
        yield resolve_file(snapshot.uri, path)
        if vector is not None and vector["storageType"] != "i":
            yield vector_address(snapshot.uri, vector)


def _listed(filesystem: fs.FileSystem, uri: str) -> set[str]:
    found = filesystem.get_file_info(fs.FileSelector(filesystem_path(uri), recursive=True))
    return {info.path for info in found}
