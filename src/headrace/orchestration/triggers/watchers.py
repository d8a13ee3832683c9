"""One watcher per trigger: it looks, and proposes what the ledger should record."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic_core import to_jsonable_python

from headrace.ledger.firing_records import FiringRequest, HandledFile, TriggerRecord
from headrace.ledger.records import ACTIVE, GOOD, CodeVersion, RunRequest
from headrace.ledger.store import Ledger
from headrace.orchestration.project import Project
from headrace.triggers.decide import (
    continuous_wait_s,
    due_times,
    local_date,
)
from headrace.triggers.model import (
    Continuous,
    Cron,
    Interval,
    PipelineEnd,
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
        self._newest: tuple[object, float] | None = None

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
        key = f"manual:{stamp(now)}"
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
        """Seconds since the trigger made a run, or None when it has made none."""
        fired_at = record.fired_at
        return None if fired_at is None else self.seconds_since(fired_at, fired_at)

    def seconds_since(self, event: object, moment: datetime | None) -> float:
        """Seconds since the newest event, which pass also when the clock is set back.

        Args:
            event: What tells it from the one before.
            moment: When it was, or None for now.
        """
        if self._newest is None or self._newest[0] != event:
            told = (datetime.now(UTC) - moment).total_seconds() if moment else 0.0
            self._newest = event, self.around.clock() - max(0.0, told)
        return self.around.clock() - self._newest[1]


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
            first, last = (stamp(moment) for moment in (due.missed.first, due.missed.last))
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
                "previous_time": stamp(before),
            }
            firings.append(self.request(stamp(moment), facts, skip_if_busy=self.skips))
            before = moment
        return Proposal(cursor={"at": due.cursor.isoformat()}, firings=tuple(firings))


class ContinuousWatcher(Watcher):
    """Keeps one run at work."""

    trigger: Continuous

    def first_cursor(self) -> dict[str, Any]:
        """Nothing has run."""
        return {"number": 0, "failures": 0}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """The next run, once the last one has ended and its wait is over."""
        if self.is_busy():
            self._newest = None
            return None
        number, failures = record.cursor["number"], record.cursor["failures"]
        last = self.around.ledger.last_trigger_run(self.pipeline.name, self.trigger.name)
        if last is not None:
            if last.state in ACTIVE:
                return None
            failures = 0 if last.state in GOOD else failures + 1
            if self.seconds_since(last.id, last.ended_at) < continuous_wait_s(
                self.trigger, failures
            ):
                return None
        cursor = {"number": number + 1, "failures": failures}
        return Proposal(
            cursor=cursor, firings=(self.request(str(number + 1), cursor, skip_if_busy=False),)
        )


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


def is_late(logical: datetime, created: datetime) -> bool:
    """Whether a time got its run so late that somebody should know."""
    return created - logical > timedelta(seconds=_LATE_S)


def stamp(moment: datetime) -> str:
    """A moment in UTC as ISO 8601, with a Z."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
