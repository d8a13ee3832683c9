"""When versions were committed, as Delta counts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.delta.segments import LogListing, log_path
from headrace.exceptions import ReadRequestError, VersionNotFoundError

if TYPE_CHECKING:
    from pyarrow import fs


def parse_time(value: datetime | str) -> int:
    """Milliseconds since 1970. A text or datetime without a zone is UTC.

    Raises:
        ReadRequestError: The text is no ISO 8601 time.
    """
    try:
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError as error:
        raise ReadRequestError(
            problem=f"Timestamp {value!r} can't be parsed.",
            found=str(error),
            fix='write it as "2026-11-01T00:00:00Z"',
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def version_at(
    filesystem: fs.FileSystem, uri: str, listing: LogListing, timestamp: datetime | str
) -> int:
    """The newest version committed at or before a time.

    As in Spark, a time before the first commit or after the last one is refused: the table could
    still get a commit before that time, and the answer would change.

    Raises:
        VersionNotFoundError: The time is outside the log's range.
    """
    wanted = parse_time(timestamp)
    times = commit_times(filesystem, uri, listing)
    reached = [version for version, time in times.items() if time <= wanted]
    if not times or not reached or wanted > times[max(times)]:
        found = "The log has no commit files."
        if times:
            first, last = min(times), max(times)
            found = (
                f"Its log reaches from version {first} at {format_time(times[first])} "
                f"to version {last} at {format_time(times[last])}."
            )
        raise VersionNotFoundError(uri=uri, wanted=f"version at {timestamp}", found=found)
    return max(reached)


def commit_times(
    filesystem: fs.FileSystem, uri: str, listing: LogListing, *, first: int = 0
) -> dict[int, int]:
    """Each commit's time in ms: its in-commit timestamp, else its file's time made monotonic."""
    times: dict[int, int] = {}
    before = None
    for version in _connected(listing):
        time = listing.modified_ms[version]
        if before is not None and time <= before:
            time = before + 1  # Delta moves a clock that went back forward, one ms at a time
        times[version] = before = time
    for version in sorted(times, reverse=True):
        if version < first:
            break
        own = in_commit_time(filesystem, uri, listing.commits[version])
        if own is None:
            break  # in-commit timestamps are on from one version to the newest
        times[version] = own
    return {version: time for version, time in times.items() if version >= first}


def in_commit_time(filesystem: fs.FileSystem, uri: str, name: str) -> int | None:
    """The `inCommitTimestamp` of a commit; the protocol puts it into the first line."""
    with filesystem.open_input_stream(f"{log_path(uri)}/{name}") as stream:
        head = bytes(stream.read(1 << 16))
        while b"\n" not in head and (more := stream.read(1 << 20)):
            head += bytes(more)
    try:
        action = json.loads(head.split(b"\n", 1)[0])
    except ValueError:
        return None
    value = (action.get("commitInfo") or {}).get("inCommitTimestamp")
    return None if value is None else int(value)


def format_time(milliseconds: int) -> str:
    """A time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _connected(listing: LogListing) -> list[int]:
    """The newest run of commits without a gap, oldest first."""
    versions = sorted(listing.commits)
    for position in range(len(versions) - 1, 0, -1):
        if versions[position] - versions[position - 1] != 1:
            return versions[position:]
    return versions
