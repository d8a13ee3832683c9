"""Finds files that fit a pattern, again and again, without asking about each one every time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyarrow import fs

from headrace.delta.location import filesystem_path, open_filesystem
from headrace.profiles.storage import Storage
from headrace.triggers.decide import FileState

_RACY_NS: Final = 2_000_000_000
# Looks take this share of the time at most, however many files there are.
_SHARE: Final = 20.0
_SWEEP_S: Final = 60.0
_WILD: Final = re.compile(r"[*?\[]")


@dataclass
class _Folder:
    """A folder as it was listed: its folders, and its files by name."""

    mtime_ns: int
    folders: list[str] = field(default_factory=list)
    files: dict[str, FileState] = field(default_factory=dict)


class LocalFiles:
    """Files on local disk that fit a pattern.

    A folder whose time has not changed has the same names as before, and is not listed again; its
    files are asked for their sizes and times once a minute, which finds those that were
    overwritten in place.

    Args:
        pattern: Absolute, with `*`, `?`, `[...]` or `**`.
    """

    def __init__(self, pattern: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        parts = Path(pattern).parts
        wild = next(place for place, part in enumerate(parts) if _WILD.search(part))
        self.base = str(Path(*parts[:wild]))
        self.rest = parts[wild:]
        self._clock = clock
        self._folders: dict[str, _Folder] = {}
        self._next_sweep = 0.0
        self._sweeping = True

    def look(self) -> list[FileState] | None:
        """Every file that fits, or None when nothing can have changed since the last look."""
        begin = self._clock()
        sweep = begin >= self._next_sweep
        before = self._folders
        if not sweep and before and all(_same(path, seen) for path, seen in before.items()):
            return None
        self._folders = {}
        self._sweeping = sweep
        found = list(dict.fromkeys(self._walk(self.base, self.rest, before)))
        if sweep:
            spent = self._clock() - begin
            self._next_sweep = self._clock() + max(_SWEEP_S, _SHARE * spent)
        return found

    def state_of(self, path: str) -> FileState | None:
        """One file as it is now, or None when it is gone; later looks know it as that."""
        try:
            seen = os.stat(path)  # noqa: PTH116
        except OSError:
            return None
        folder, _, name = path.rpartition("/")
        state = FileState(path, seen.st_size, seen.st_mtime_ns)
        listed = self._folders.get(folder)
        if listed is not None and name in listed.files:
            listed.files[name] = state
        return state

    def _walk(
        self, folder: str, parts: tuple[str, ...], before: dict[str, _Folder]
    ) -> Iterator[FileState]:
        listed = self._list(folder, before)
        if listed is None:
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._walk(folder, rest or ("*",), before)
            for name in listed.folders:
                if not name.startswith("."):
                    yield from self._walk(f"{folder}/{name}", parts, before)
        elif rest:
            for name in listed.folders:
                if _fits(name, part):
                    yield from self._walk(f"{folder}/{name}", rest, before)
        else:
            match = _matcher(part)
            hidden = part.startswith(".")
            for name, file in listed.files.items():
                if match(name) and (hidden or not name.startswith(".")):
                    yield file

    def _list(self, folder: str, before: dict[str, _Folder]) -> _Folder | None:
        if folder in self._folders:
            return self._folders[folder]
        known = before.get(folder)
        if known is None or self._sweeping or not _same(folder, known):
            known = _list_folder(folder, {} if known is None or self._sweeping else known.files)
            if known is None:
                return None
        self._folders[folder] = known
        return known


class RemoteFiles:
    """Files in an S3 store that fit a pattern; a listing of 1,000 keys is one request.

    Args:
        pattern: `s3://bucket/...` with wildcards below the bucket.
        storage: Credentials and endpoint.
    """

    def __init__(
        self, pattern: str, storage: Storage, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        scheme, _, path = pattern.partition("://")
        parts = path.split("/")
        wild = next(place for place, part in enumerate(parts) if _WILD.search(part))
        self._scheme = "s3" if scheme in ("s3", "s3a", "s3n") else scheme
        self.base = "/".join(parts[:wild])
        self.rest = tuple(parts[wild:])
        self.storage = storage
        self._clock = clock
        self._regex = re.compile(_path_regex(self.rest))
        self._next = 0.0

    def look(self) -> list[FileState] | None:
        """Every file that fits, or None when it is too early for another listing."""
        begin = self._clock()
        if begin < self._next:
            return None
        address = f"{self._scheme}://{self.base}"
        filesystem = open_filesystem(address, self.storage)
        recursive = len(self.rest) > 1 or "**" in self.rest
        base = filesystem_path(address)
        selector = fs.FileSelector(base, recursive=recursive, allow_not_found=True)
        found = []
        for info in filesystem.get_file_info(selector):
            below = info.path[len(base) :].lstrip("/")
            if info.type == fs.FileType.File and self._regex.fullmatch(below):
                path = f"{self._scheme}://{info.path}"
                found.append(FileState(path, info.size or 0, info.mtime_ns or 0))
        spent = self._clock() - begin
        self._next = self._clock() + max(1.0, _SHARE * spent)
        return sorted(found)

    def state_of(self, path: str) -> FileState | None:
        """One file as it is now, or None when it is gone."""
        [info] = open_filesystem(path, self.storage).get_file_info([filesystem_path(path)])
        if info.type != fs.FileType.File:
            return None
        return FileState(path, info.size or 0, info.mtime_ns or 0)


Files = LocalFiles | RemoteFiles


def open_files(
    pattern: str, *, root: Path, storage: Storage, clock: Callable[[], float] = time.monotonic
) -> Files:
    """What finds the files of a pattern; a relative one starts at the project's root."""
    if "://" in pattern and not pattern.startswith("file://"):
        return RemoteFiles(pattern, storage, clock=clock)
    plain = Path(pattern.removeprefix("file://")).expanduser()
    return LocalFiles(str(plain if plain.is_absolute() else root / plain), clock=clock)


def _list_folder(folder: str, known: Mapping[str, FileState]) -> _Folder | None:
    """List a folder; files whose names are known are not asked again for size and time."""
    try:
        # Before the names: a file that comes in between changes the time once more.
        mtime_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116
        racy = abs(time.time_ns() - mtime_ns) < _RACY_NS
        listed = _Folder(-1 if racy else mtime_ns)
        with os.scandir(folder) as entries:
            for entry in entries:
                file = known.get(entry.name)
                if file is not None:
                    listed.files[entry.name] = file
                elif entry.is_dir(follow_symlinks=False):
                    listed.folders.append(entry.name)
                elif (file := _state(entry)) is not None:
                    listed.files[entry.name] = file
    except OSError:
        return None
    return listed


def _state(entry: os.DirEntry[str]) -> FileState | None:
    try:
        seen = entry.stat()
    except OSError:
        return None
    return FileState(entry.path, seen.st_size, seen.st_mtime_ns)


def _same(folder: str, known: _Folder) -> bool:
    try:
        return os.stat(folder).st_mtime_ns == known.mtime_ns  # noqa: PTH116
    except OSError:
        return False


def _fits(name: str, part: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return _matcher(part)(name) is not None


def _matcher(part: str) -> Callable[[str], object]:
    return re.compile(_part_regex(part)).fullmatch


def _part_regex(part: str) -> str:
    """One part of a pattern, between two slashes, as a regular expression."""
    found, place = "", 0
    while place < len(part):
        char = part[place]
        end = part.find("]", place + 2) if char == "[" else -1
        if end > 0:
            inner = part[place + 1 : end].replace("\\", r"\\")
            found += f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
            place = end + 1
            continue
        found += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
        place += 1
    return found


def _path_regex(parts: tuple[str, ...]) -> str:
    """A whole pattern below its base; `**` stands for any number of folders."""
    found = ""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            found += r"(?:[^/]+/)*" + ("[^/]+" if last else "")
        else:
            found += _part_regex(part) + ("" if last else "/")
    return found
