"""One watcher per trigger: it looks, and proposes what the ledger should record."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic_core import to_jsonable_python

from headrace.context import resolve_table
from headrace.delta.poll import LogState, TablePoll
from headrace.ledger.firing_records import FiringRequest, HandledFile, TriggerRecord
from headrace.ledger.records import ACTIVE, GOOD, CodeVersion, RunRequest
from headrace.ledger.store import Ledger
from headrace.orchestration.project import Project
from headrace.orchestration.triggers.files import open_files
from headrace.triggers.decide import (
    FileState,
    TableSeen,
    TableState,
    changed_tables,
    continuous_wait_s,
    due_times,
    local_date,
    next_state,
    set_digest,
    waited,
)
from headrace.triggers.model import (
    Continuous,
    Cron,
    FileArrival,
    Interval,
    PipelineEnd,
    TableUpdate,
    Trigger,
    TriggerPolicy,
)
from headrace.triggers.templates import fill_in

_LATE_S: Final = 300.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """A pipeline that is served, without its code.

    Attributes:
        name: Its name.
        entrypoint: `module.function`.
        policy: Its triggers and how they work together.
    """

    name: str
    entrypoint: str
    policy: TriggerPolicy


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a watcher wants the ledger to record."""

    cursor: dict[str, Any]
    firings: tuple[FiringRequest, ...] = ()
    files: tuple[HandledFile, ...] = ()


@dataclass(kw_only=True)
class Surroundings:
    """What watchers work with.

    Attributes:
        project: The project.
        ledger: Its ledger.
        user: Whom the runs belong to.
        code: The code that runs now.
        now: The time of day; tests move it.
        clock: Seconds that pass; nobody sets this back.
    """

    project: Project
    ledger: Ledger
    user: str = ""
    code: CodeVersion = field(default_factory=CodeVersion)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    clock: Callable[[], float] = time.monotonic


class Watcher(ABC):
    """Base of the watchers.

    Args:
        pipeline: The pipeline.
        trigger: One of its triggers.
        around: What to work with.
    """

    def __init__(self, pipeline: Served, trigger: Trigger, around: Surroundings) -> None:
        self.pipeline = pipeline
        self.trigger = trigger
        self.around = around

    @abstractmethod
    def first_cursor(self) -> dict[str, Any]:
        """Where the cursor of a trigger starts that was never served."""

    @abstractmethod
    def look(self, record: TriggerRecord) -> Proposal | None:
        """What is to be recorded now, or None.

        Args:
            record: The trigger as the ledger has it.
        """

    def force(self, record: TriggerRecord) -> Proposal | None:
        """What a person's wish to fire comes to, or None when there is nothing to hand over."""
        now = self.around.now()
        key = f"manual:{_stamp(now)}"
        facts = {"number": record.cursor.get("number", 0), "failures": 0, "moment": now}
        return Proposal(
            cursor=record.cursor, firings=(self.request(key, facts, skip_if_busy=False),)
        )

    def request(self, key: str, facts: dict[str, Any], *, skip_if_busy: bool) -> FiringRequest:
        """A firing with its run."""
        moment = facts.get("moment") or self.around.now()
        facts = {
            "name": self.trigger.name,
            "kind": self.trigger.kind,
            "key": key,
            "time": moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "date": moment.astimezone(UTC).date().isoformat(),
            **{name: value for name, value in facts.items() if name != "moment"},
        }
        filled = fill_in(self.trigger.parameters, facts)
        return FiringRequest(
            key=key,
            logical_time=moment,
            facts={name: value for name, value in facts.items() if name != "files"},
            skip_if_busy=skip_if_busy,
            run=RunRequest(
                pipeline=self.pipeline.name,
                entrypoint=self.pipeline.entrypoint,
                parameters=to_jsonable_python(filled, fallback=str),
                environment=self.around.project.environment.name,
                user=self.around.user,
                code=self.around.code,
                profiles=dict(self.around.project.environment.task_profiles),
                tags={"trigger": self.trigger.name},
            ),
        )

    @property
    def skips(self) -> bool:
        """Whether what comes while the pipeline is busy is passed over."""
        return self.pipeline.policy.when_busy == "skip"

    def is_busy(self) -> bool:
        """Whether as many runs of the pipeline as may be wait or are at work."""
        active = self.around.ledger.active_runs(self.pipeline.name)
        return len(active) >= self.pipeline.policy.max_concurrent

    def gap_s(self, record: TriggerRecord) -> float | None:
        """Seconds since the trigger's last run was made; a clock that was set back gives 0."""
        if record.fired_at is None:
            return None
        return max(0.0, (datetime.now(UTC) - record.fired_at).total_seconds())


class ScheduleWatcher(Watcher):
    """Fires at the times of a cron expression or an interval."""

    trigger: Cron | Interval

    def first_cursor(self) -> dict[str, Any]:
        """Times before a trigger is served for the first time are not its own."""
        return {"at": self.around.now().isoformat()}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """The times that are due."""
        policy = self.pipeline.policy
        cursor, now = datetime.fromisoformat(record.cursor["at"]), self.around.now()
        due = due_times(self.trigger, cursor=cursor, now=now, catch_up=policy.catch_up)
        if due.cursor == cursor:
            return None
        firings = []
        if due.missed is not None:
            first, last = (_stamp(moment) for moment in (due.missed.first, due.missed.last))
            firings.append(
                FiringRequest(
                    key=f"missed:{first}..{last}",
                    decision="missed",
                    reason=f"{due.missed.count} times passed while nothing served, and "
                    f'catch_up="{policy.catch_up}"',
                    logical_time=due.missed.last,
                )
            )
        before = cursor
        for moment in due.fire:
            facts = {
                "moment": moment,
                "date": local_date(self.trigger, moment),
                "previous_time": _stamp(before),
            }
            firings.append(self.request(_stamp(moment), facts, skip_if_busy=self.skips))
            before = moment
        return Proposal(cursor={"at": due.cursor.isoformat()}, firings=tuple(firings))


class TableWatcher(Watcher):
    """Fires when tables have new rows."""

    trigger: TableUpdate

    def __init__(self, pipeline: Served, trigger: TableUpdate, around: Surroundings) -> None:
        super().__init__(pipeline, trigger, around)
        environment = around.project.environment
        self._polls = {
            name: TablePoll(resolve_table(name, lake=environment.lake), environment.storage)
            for name in trigger.tables
        }
        self._last: dict[str, LogState | None] = {}
        self._changed_at = around.clock()
        self._handled: tuple[int, dict[str, TableState]] = (-1, {})

    def first_cursor(self) -> dict[str, Any]:
        """What is there counts as handled, if the trigger says so."""
        if self.trigger.existing:
            return {"tables": {}}
        seen = {name: poll.look() for name, poll in self._polls.items()}
        return {
            "tables": {
                name: {"id": state.id, "version": state.version, "epoch": 0}
                for name, state in seen.items()
                if state
            }
        }

    def look(self, record: TriggerRecord) -> Proposal | None:
        """A run for new versions, once the tables are quiet."""
        found = {name: poll.look() for name, poll in self._polls.items()}
        if found == self._last and self._handled[0] == record.rev and not self._open:
            return None
        if found != self._last:
            self._last, self._changed_at = found, self.around.clock()
        handled = self._handled_states(record)
        seen = {
            name: TableSeen(
                id=state.id, version=state.version, changed=self._changes(name, handled)
            )
            for name, state in found.items()
            if state is not None
        }
        changed = changed_tables(self.trigger, handled, seen)
        self._open = bool(changed)
        if not changed:
            return self._forget_quiet_versions(handled, seen)
        quiet_for_s = self.around.clock() - self._changed_at
        if not waited(self.trigger, quiet_for_s=quiet_for_s, gap_s=self.gap_s(record)):
            return None
        if self.skips and self.is_busy():
            return None  # Nothing is lost: the next run gets these changes too.
        return self._propose(handled, seen, changed)

    _open = True

    def force(self, record: TriggerRecord) -> Proposal | None:
        """The newest versions, of every table that is there, whether they are new or not."""
        self._last = {name: poll.look() for name, poll in self._polls.items()}
        handled = self._handled_states(record)
        seen = {
            name: TableSeen(id=state.id, version=state.version)
            for name, state in self._last.items()
            if state is not None
        }
        changed = changed_tables(replace(self.trigger, when="any"), handled, seen)
        if changed:
            return self._propose(handled, seen, changed)
        if not seen:
            return None
        proposal = self._propose(handled, seen, tuple(seen))
        [firing] = proposal.firings
        # The versions have had their run: this is one more of them.
        again = firing.model_copy(update={"key": f"manual:{_stamp(self.around.now())}"})
        return replace(proposal, cursor=record.cursor, firings=(again,))

    def _propose(
        self,
        handled: dict[str, TableState],
        seen: dict[str, TableSeen],
        changed: tuple[str, ...],
    ) -> Proposal:
        states = {
            **handled,
            **{name: next_state(handled.get(name), seen[name]) for name in changed},
        }
        key = ",".join(states[name].key for name in changed)
        previous = {
            name: handled[name].version
            if name in handled and handled[name].epoch == states[name].epoch
            else -1
            for name in changed
        }
        facts = {
            "table": changed[0],
            "version": states[changed[0]].version,
            "previous_version": previous[changed[0]],
            "versions": {name: states[name].version for name in changed},
            "previous_versions": previous,
        }
        return Proposal(
            cursor=_table_cursor(states),
            firings=(self.request(key, facts, skip_if_busy=False),),
        )

    def _forget_quiet_versions(
        self, handled: dict[str, TableState], seen: dict[str, TableSeen]
    ) -> Proposal | None:
        """Move past versions that change no row, so that their commits are not read again."""
        moved = {
            name: replace(state, version=seen[name].version)
            for name, state in handled.items()
            if name in seen
            and not seen[name].changed
            and seen[name].id == state.id
            and seen[name].version > state.version
        }
        return Proposal(cursor=_table_cursor({**handled, **moved})) if moved else None

    def _handled_states(self, record: TriggerRecord) -> dict[str, TableState]:
        if self._handled[0] != record.rev:
            states = {name: TableState(**state) for name, state in record.cursor["tables"].items()}
            self._handled = (record.rev, states)
        return self._handled[1]

    def _changes(self, name: str, handled: dict[str, TableState]) -> bool:
        state, found = handled.get(name), self._last[name]
        if state is None or found is None or found.id != state.id or found.version < state.version:
            return True
        return self._polls[name].changes_rows(state.version)


class FileWatcher(Watcher):
    """Fires when files have come and settled."""

    trigger: FileArrival

    def __init__(self, pipeline: Served, trigger: FileArrival, around: Surroundings) -> None:
        super().__init__(pipeline, trigger, around)
        project = around.project
        self._files = open_files(
            trigger.pattern,
            root=project.root,
            storage=project.environment.storage,
            clock=around.clock,
        )
        self._handled: set[FileState] = set()
        self._handled_id = 0
        self._rev = -1
        self._present: dict[str, FileState] = {}
        self._open: dict[str, tuple[FileState, float]] = {}

    def first_cursor(self) -> dict[str, Any]:
        """Files that are there are passed over by the first look, if the trigger says so."""
        return {"started": self.trigger.existing}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """A run for files that nobody was given yet."""
        known = self._rev == record.rev
        if not known:
            self._load_handled(record)
        found = self._files.look()
        if found is not None:
            self._present = {file.path: file for file in found}
        if found is not None or not known:
            self._note_new()
        if not record.cursor["started"]:
            return self._pass_over()
        return self._ready(record) if self._open else None

    def force(self, record: TriggerRecord) -> Proposal | None:
        """Every new file, settled or not."""
        self._load_handled(record)
        self._present = {file.path: file for file in self._files.look() or ()}
        self._note_new()
        chosen = sorted(file for file, _ in self._open.values())[: self.trigger.max_files]
        return self._propose(chosen) if chosen else None

    def _load_handled(self, record: TriggerRecord) -> None:
        """Read what was handled since the last look, by this process or by another."""
        rows = self.around.ledger.handled_files(record.id, after_id=self._handled_id)
        for row_id, file in rows:
            self._handled.add(FileState(file.path, file.size, file.mtime_ns))
            self._handled_id = row_id
        self._rev = record.rev

    def _note_new(self) -> None:
        now = self.around.clock()
        new = {path: file for path, file in self._present.items() if file not in self._handled}
        self._open = {
            path: (file, self._open[path][1])
            if path in self._open and self._open[path][0] == file
            else (file, now)
            for path, file in new.items()
        }

    def _pass_over(self) -> Proposal:
        files = tuple(_handled_file(file) for file, _ in self._open.values())
        return Proposal(cursor={"started": True}, files=files)

    def _ready(self, record: TriggerRecord) -> Proposal | None:
        now = self.around.clock()
        settled = [
            file for file, since in self._open.values() if now - since >= self.trigger.settle_s
        ]
        quiet_for_s = now - max(since for _, since in self._open.values())
        if not settled or not waited(
            self.trigger, quiet_for_s=quiet_for_s, gap_s=self.gap_s(record)
        ):
            return None
        if self.skips and self.is_busy():
            return None  # Nothing is lost: the next run gets these files too.
        chosen = [file for file in sorted(settled)[: self.trigger.max_files] if self._stands(file)]
        return self._propose(chosen) if chosen else None

    def _propose(self, chosen: list[FileState]) -> Proposal:
        facts = {"files": [file.path for file in chosen], "count": len(chosen)}
        return Proposal(
            cursor={"started": True},
            firings=(self.request(set_digest(chosen), facts, skip_if_busy=False),),
            files=tuple(_handled_file(file) for file in chosen),
        )

    def _stands(self, file: FileState) -> bool:
        """Whether a file is still what it was; one that grows has not settled."""
        state = self._files.state_of(file.path)
        if state == file:
            return True
        if state is None:
            self._open.pop(file.path, None)
            self._present.pop(file.path, None)
        else:
            self._present[file.path] = state
            self._open[file.path] = (state, self.around.clock())
        return False


class ContinuousWatcher(Watcher):
    """Keeps one run at work."""

    trigger: Continuous

    def __init__(self, pipeline: Served, trigger: Continuous, around: Surroundings) -> None:
        super().__init__(pipeline, trigger, around)
        self._ended: tuple[str, float] | None = None

    def first_cursor(self) -> dict[str, Any]:
        """Nothing has run."""
        return {"number": 0, "failures": 0}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """The next run, once the last one has ended and its wait is over."""
        if self.is_busy():
            self._ended = None
            return None
        number, failures = record.cursor["number"], record.cursor["failures"]
        last = self.around.ledger.last_trigger_run(self.pipeline.name, self.trigger.name)
        if last is not None:
            if last.state in ACTIVE:
                return None
            failures = 0 if last.state in GOOD else failures + 1
            if self._seconds_since(last.id, last.ended_at) < continuous_wait_s(
                self.trigger, failures
            ):
                return None
        cursor = {"number": number + 1, "failures": failures}
        return Proposal(
            cursor=cursor, firings=(self.request(str(number + 1), cursor, skip_if_busy=False),)
        )

    def _seconds_since(self, run_id: str, ended_at: datetime | None) -> float:
        """Seconds since the run's end, which pass also when the clock is set back."""
        if self._ended is None or self._ended[0] != run_id:
            told = (datetime.now(UTC) - ended_at).total_seconds() if ended_at else 0.0
            self._ended = run_id, self.around.clock() - max(0.0, told)
        return self.around.clock() - self._ended[1]


class PipelineWatcher(Watcher):
    """Fires when runs of another pipeline end."""

    trigger: PipelineEnd

    def first_cursor(self) -> dict[str, Any]:
        """Runs that have ended already are not waited for."""
        return {"after": self.around.ledger.newest_repair()}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """A run for each end that counts."""
        after = record.cursor["after"]
        ended, upto = self.around.ledger.ends_after(self.trigger.pipeline, after)
        wanted = [end for end in ended if self._counts(end[3])]
        known = self.around.ledger.fired_keys(
            self.pipeline.name, self.trigger.name, [f"{run}/{seq}" for _, run, seq, _ in wanted]
        )
        firings = []
        for _, run_id, seq, state in wanted:
            if f"{run_id}/{seq}" in known:
                continue
            facts = {"run_id": run_id, "state": state, "pipeline": self.trigger.pipeline}
            firings.append(self.request(f"{run_id}/{seq}", facts, skip_if_busy=self.skips))
        if not firings and upto == after:
            return None
        return Proposal(cursor={"after": upto}, firings=tuple(firings))

    def _counts(self, state: str) -> bool:
        if self.trigger.on == "success":
            return state in GOOD
        return self.trigger.on == "end" or (state not in GOOD and state != "cancelled")


def make_watcher(pipeline: Served, trigger: Trigger, around: Surroundings) -> Watcher:
    """The watcher of a trigger."""
    kinds: dict[type[Trigger], type[Watcher]] = {
        Cron: ScheduleWatcher,
        Interval: ScheduleWatcher,
        TableUpdate: TableWatcher,
        FileArrival: FileWatcher,
        Continuous: ContinuousWatcher,
        PipelineEnd: PipelineWatcher,
    }
    return kinds[type(trigger)](pipeline, trigger, around)


def is_late(logical: datetime, created: datetime) -> bool:
    """Whether a time got its run so late that somebody should know."""
    return created - logical > timedelta(seconds=_LATE_S)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _table_cursor(states: dict[str, TableState]) -> dict[str, Any]:
    return {
        "tables": {
            name: {"id": state.id, "version": state.version, "epoch": state.epoch}
            for name, state in states.items()
        }
    }


def _handled_file(file: FileState) -> HandledFile:
    return HandledFile(digest=file.digest, path=file.path, size=file.size, mtime_ns=file.mtime_ns)
