"""Addresses of tables and of the files that a log names."""

from __future__ import annotations

import contextlib
import re
from urllib.parse import unquote

from pyarrow import fs

from headrace.exceptions import ReadRequestError
from headrace.profiles.storage import Storage

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*):(.*)$", re.DOTALL)
_S3_SCHEMES = ("s3", "s3a", "s3n")


def normal_uri(uri: str) -> str:
    """An address in the form that `TableRef` keeps: a plain path or `s3://`, no slash at the end.

    A plain path is taken literally: `%20` and `+` in it are the characters themselves.
    """
    match = _SCHEME.match(uri)
    if match is None:
        return uri.rstrip("/") or "/"
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return "/" + unquote(rest).strip("/")
    if scheme in _S3_SCHEMES:
        return "s3://" + rest.strip("/")
    return uri.rstrip("/")


def open_filesystem(uri: str, storage: Storage) -> fs.FileSystem:
    """The native pyarrow file system that an address lives on.

    Credentials that are about to end are refreshed first, on a worker as well as on the driver.

    Raises:
        ReadRequestError: The address is in an S3 store and the storage is not.
        StorageRefreshError: The refresh command fails.
    """
    if uri.startswith("s3://"):
        if storage.kind != "s3":
            raise ReadRequestError(
                problem=f"{uri} lies in an S3 store, and the storage settings are for local disk.",
                found='A profile or environment sets them in [storage], with kind = "s3".',
                fix='[storage]\nkind = "s3"',
            )
        return storage.fresh().filesystem()
    if "://" in uri:
        return fs.FileSystem.from_uri(uri)[0]
    return fs.LocalFileSystem()


def delete_folder(filesystem: fs.FileSystem, path: str) -> None:
    """Delete a folder and what is in it; one that is gone already is fine.

    Some stores keep a folder's marker (`name/`, which Hadoop leaves) for as long as there is
    something below it, and refuse a request that names both. So what is inside goes first.

    Args:
        filesystem: Where it is.
        path: The file system's path of the folder.
    """
    try:
        filesystem.delete_dir(path)
    except FileNotFoundError:
        return
    except OSError:
        inside = filesystem.get_file_info(
            fs.FileSelector(path, recursive=True, allow_not_found=True)
        )
        deepest_first = sorted(inside, key=lambda info: -info.path.count("/"))
        for info in deepest_first:
            with contextlib.suppress(FileNotFoundError):
                if info.type == fs.FileType.Directory:
                    filesystem.delete_dir(info.path)
                else:
                    filesystem.delete_file(info.path)
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(path)


def filesystem_path(uri: str) -> str:
    """What the file system calls this address: without `s3://`."""
    match = _SCHEME.match(uri)
    if match is None or not match[2].startswith("//"):
        return uri
    return match[2].lstrip("/") if match[1].lower() in _S3_SCHEMES else match[2][1:]


def resolve_file(table_uri: str, path: str) -> str:
    """The address of a file that an action names.

    Paths in actions are percent-encoded (RFC 2396): relative to the table, or absolute, as
    shallow clones write them.

    Args:
        table_uri: The table's address, not encoded.
        path: The `path` of an `add`, `remove` or `cdc` action.
    """
    match = _SCHEME.match(path)
    if match is not None:
        scheme, rest = match[1].lower(), unquote(match[2])
        if scheme == "file":
            return "/" + rest.lstrip("/")
        return f"s3:{rest}" if scheme in _S3_SCHEMES else f"{scheme}:{rest}"
    if path.startswith("/"):
        return unquote(path)
    return f"{table_uri.rstrip('/')}/{unquote(path)}"
