"""What is due now: from a rule, a cursor and what was seen, to decisions. Nothing is looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from headrace.triggers.model import CatchUp, Continuous, FileArrival, Schedule, TableUpdate
from headrace.triggers.schedule import count_ticks, last_tick, ticks

LATE = timedelta(seconds=60)
"""A time that is no older has not been missed: the loop was only slow."""

REWIND = timedelta(seconds=60)
"""A cursor that is further ahead than this shows that a clock was set back."""

_AT_ONCE = 100
_MOST_COUNTED = 1000


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Times that passed without a run.

    Attributes:
        first: The oldest.
        last: The newest.
        count: How many; 1000 stands for more too.
    """

    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, kw_only=True)
class DueTimes:
    """What a schedule's cursor and the clock come to.

    Attributes:
        fire: Times that get a run, oldest first.
        missed: Times that get none, or None.
        cursor: Where the cursor goes; the same when nothing is due.
    """

    fire: tuple[datetime, ...] = ()
    missed: Missed | None = None
    cursor: datetime


def due_times(
    schedule: Schedule, *, cursor: datetime, now: datetime, catch_up: CatchUp
) -> DueTimes:
    """Decide which times of a schedule are due.

    A clock that was set back moves the cursor back with it: times that have had their run are
    known by their key and get no second one, and those that were passed over get theirs.

    Args:
        schedule: The rule.
        cursor: Everything up to here has been decided.
        now: The present.
        catch_up: `last` runs the newest of several times, `all` each, `none` only what is at most
            a minute old.
    """
    if cursor > now + REWIND:
        return DueTimes(cursor=now)
    newest = last_tick(schedule, now, after=cursor)
    if newest is None:
        return DueTimes(cursor=cursor)
    if catch_up == "all":
        fire = tuple(islice(ticks(schedule, cursor, now), _AT_ONCE))
        return DueTimes(fire=fire, cursor=fire[-1])
    fire = () if catch_up == "none" and now - newest > LATE else (newest,)
    count = count_ticks(schedule, cursor, newest, most=_MOST_COUNTED) - len(fire)
    missed = None
    if count > 0:
        first = next(ticks(schedule, cursor, now))
        before = (
            last_tick(schedule, newest - timedelta(seconds=1), after=cursor) if fire else newest
        )
        missed = Missed(first=first, last=before or first, count=count)
    return DueTimes(fire=fire, missed=missed, cursor=newest)


def upcoming(schedule: Schedule, now: datetime, count: int) -> list[datetime]:
    """The next times of a schedule."""
    return list(islice(ticks(schedule, now, now + timedelta(days=366 * 8)), count))


def local_date(schedule: Schedule, moment: datetime) -> str:
    """The date of a time in the schedule's own zone."""
    zone = getattr(schedule, "tz", "UTC")
    return moment.astimezone(ZoneInfo(zone)).date().isoformat()


@dataclass(frozen=True, kw_only=True)
class TableState:
    """A version of a table, as a cursor keeps it.

    Attributes:
        id: The table's id, which a table that was made anew has not.
        version: Delta version.
        epoch: Grows when the table at this place became another one, or went back.
    """

    id: str
    version: int
    epoch: int = 0

    @property
    def key(self) -> str:
        """What makes a run of this version the only one."""
        return f"{hashlib.sha256(self.id.encode()).hexdigest()[:12]}.{self.epoch}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class TableSeen:
    """What a look at a table found.

    Attributes:
        id: The table's id.
        version: Its newest version.
        changed: Whether the versions after the handled one change any row.
    """

    id: str
    version: int
    changed: bool = True


def next_state(handled: TableState | None, seen: TableSeen) -> TableState:
    """The state that a table comes to once what was seen is handled."""
    if handled is None:
        return TableState(id=seen.id, version=seen.version)
    same = handled.id == seen.id and seen.version >= handled.version
    epoch = handled.epoch if same else handled.epoch + 1
    return TableState(id=seen.id, version=seen.version, epoch=epoch)


def changed_tables(
    trigger: TableUpdate,
    handled: Mapping[str, TableState],
    seen: Mapping[str, TableSeen],
) -> tuple[str, ...]:
    """Tables with new data that are a reason to run, in the trigger's order.

    Args:
        trigger: The trigger; its `tables` are the keys of the others.
        handled: What the cursor says; a table that it lacks is new.
        seen: What was found; a table that is not there yet is missing.
    """
    new = [
        name
        for name in trigger.tables
        if name in seen and seen[name].changed and _is_new(handled.get(name), seen[name])
    ]
    if trigger.when == "all" and len(new) < len(trigger.tables):
        return ()
    return tuple(new)


def _is_new(handled: TableState | None, seen: TableSeen) -> bool:
    return handled is None or (handled.id, handled.version) != (seen.id, seen.version)


def waited(trigger: TableUpdate | FileArrival, *, quiet_for_s: float, gap_s: float | None) -> bool:
    """Whether both knobs of a trigger allow a run.

    Args:
        trigger: The trigger.
        quiet_for_s: Seconds since the last change.
        gap_s: Seconds since its last run, or None when there was none.
    """
    return quiet_for_s >= trigger.quiet_s and (gap_s is None or gap_s >= trigger.min_gap_s)


class FileState(NamedTuple):
    """A file as it was seen: overwriting changes size or time, and makes it another one."""

    path: str
    size: int
    mtime_ns: int

    @property
    def digest(self) -> str:
        """Tells this content of this file from every other."""
        text = f"{self.path}\0{self.size}\0{self.mtime_ns}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def set_digest(files: Sequence[FileState]) -> str:
    """Digest of a set of files, whatever their order."""
    joined = "".join(sorted(file.digest for file in files))
    return hashlib.sha256(joined.encode()).hexdigest()[:24]


def continuous_wait_s(trigger: Continuous, failures: int) -> float:
    """How long the next run of a continuous trigger waits after the end of the last one.

    Args:
        trigger: The trigger.
        failures: Failures in a row.

    Example:
        >>> [continuous_wait_s(Continuous(backoff_s=10, backoff_max_s=60), n) for n in range(5)]
        [0.0, 10.0, 20.0, 40.0, 60.0]
    """
    if failures == 0:
        return trigger.pause_s
    wait = trigger.backoff_s * 2.0 ** min(failures - 1, 60)
    return float(max(trigger.pause_s, min(wait, trigger.backoff_max_s)))
