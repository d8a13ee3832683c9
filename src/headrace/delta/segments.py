"""Which log files make up a version: commits, and the checkpoint that they start from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyarrow import fs

from headrace.delta.location import filesystem_path
from headrace.exceptions import (
    LogIncompleteError,
    TableNotFoundError,
    VersionNotFoundError,
)

_COMMIT = re.compile(r"^(\d{20})\.json$")
_COMPACTED = re.compile(r"^(\d{20})\.(\d{20})\.compacted\.json$")
_SINGLE = re.compile(r"^(\d{20})\.checkpoint\.parquet$")
_PART = re.compile(r"^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$")
_NAMED = re.compile(r"^(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint: its version and its files (several when in parts)."""

    version: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class LogListing:
    """What lies in `_delta_log`.

    Attributes:
        commits: Version to file name.
        checkpoints: Complete checkpoints, oldest first; several of one version are alternatives.
        compacted: (first, last, name) of log compaction files.
        modified_ms: Version to the modification time of its commit file, in ms since 1970.
    """

    commits: dict[int, str] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    compacted: tuple[tuple[int, int, str], ...] = ()
    modified_ms: dict[int, int] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The newest version that the log knows."""
        return max([*self.commits, *(item.version for item in self.checkpoints)])


@dataclass(frozen=True)
class Segment:
    """The files to replay for one version.

    Attributes:
        version: The version.
        checkpoint: Where to start, or None for the very first commit.
        commits: Names of commit (or compaction) files after it, oldest first.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[str, ...]


def log_path(uri: str) -> str:
    """The file system's path of a table's log folder."""
    return f"{filesystem_path(uri).rstrip('/')}/_delta_log"


def list_log(filesystem: fs.FileSystem, uri: str) -> LogListing:
    """List a table's log, in one call.

    `_last_checkpoint` is not asked: it is a hint, it may be stale or wrong, and the listing knows.

    Raises:
        TableNotFoundError: There is no log, or it is empty.
    """
    selector = fs.FileSelector(log_path(uri), allow_not_found=True)
    infos = [info for info in filesystem.get_file_info(selector) if info.type == fs.FileType.File]
    listing = sort_log_files((info.base_name, info.size or 0, info.mtime_ns or 0) for info in infos)
    if not listing.commits and not listing.checkpoints:
        found = "Its _delta_log holds no commit." if infos else "There is no _delta_log in it."
        raise TableNotFoundError(uri=uri, found=found)
    return listing


def sort_log_files(files: Iterable[tuple[str, int, int]]) -> LogListing:
    """Sort (name, size, mtime in ns) of log files into what they are; others are ignored."""
    commits: dict[int, str] = {}
    modified: dict[int, int] = {}
    compacted: list[tuple[int, int, str]] = []
    checkpoints: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    for name, size, mtime_ns in files:
        if match := _COMMIT.match(name):
            commits[int(match[1])] = name
            modified[int(match[1])] = mtime_ns // 1_000_000
        elif match := _COMPACTED.match(name):
            compacted.append((int(match[1]), int(match[2]), name))
        elif size == 0:
            continue  # Spark, too, passes over an empty checkpoint: a writer died there
        elif match := _SINGLE.match(name) or _NAMED.match(name):
            checkpoints.append(Checkpoint(int(match[1]), (name,)))
        elif match := _PART.match(name):
            parts[int(match[1]), int(match[3])][int(match[2])] = name
    for (version, count), found in parts.items():
        if sorted(found) == list(range(1, count + 1)):
            checkpoints.append(
                Checkpoint(version, tuple(found[part] for part in range(1, count + 1)))
            )
    checkpoints.sort(key=lambda item: (item.version, len(item.names), item.names))
    return LogListing(commits, tuple(checkpoints), tuple(sorted(compacted)), modified)


def plan_segments(listing: LogListing, uri: str, version: int | None = None) -> list[Segment]:
    """Every way to rebuild a version, the cheapest first.

    More than one is offered, so that a damaged checkpoint can be passed over.

    Args:
        listing: The log.
        uri: The table, for error texts.
        version: The version, or None for the newest.

    Raises:
        VersionNotFoundError: The log doesn't go that far.
        LogIncompleteError: Files that every way needs are missing.
    """
    wanted = listing.latest if version is None else version
    if wanted > listing.latest or wanted < 0:
        raise VersionNotFoundError(
            uri=uri, wanted=f"version {wanted}", found=f"The newest is version {listing.latest}."
        )
    starts = [item for item in reversed(listing.checkpoints) if item.version <= wanted]
    segments = []
    gaps = []
    for start in [*starts, None]:
        first = start.version + 1 if start else 0
        names, missing = _commits_between(listing, first, wanted)
        if missing is None:
            segments.append(Segment(wanted, start, tuple(names)))
        else:
            gaps.append(missing)
    if not segments:
        raise LogIncompleteError(uri=uri, version=wanted, missing=f"{gaps[0]:020d}.json")
    return segments


def _commits_between(listing: LogListing, first: int, last: int) -> tuple[list[str], int | None]:
    """Names that cover `first` to `last`, and the first version that nothing covers."""
    names = []
    at = first
    while at <= last:
        if at in listing.commits:
            names.append(listing.commits[at])
            at += 1
            continue
        spans = [item for item in listing.compacted if item[0] == at and item[1] <= last]
        if not spans:
            return names, at
        longest = max(spans, key=lambda item: item[1])
        names.append(longest[2])
        at = longest[1] + 1
    return names, None
