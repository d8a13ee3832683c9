"""What the ledger keeps of triggers, as plain values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from headrace.ledger.records import Record, RunRequest

Decision = Literal["run", "skipped", "missed"]


class TriggerRecord(Record):
    """A trigger and how far it has come.

    Attributes:
        pipeline: Name of its pipeline.
        name: Its name within the pipeline.
        kind: `cron`, `interval`, `table`, `files`, `continuous`, `pipeline` or `manual`.
        rule: Its rule in words.
        cursor: How far it has come; what is in it depends on the kind.
        rev: Grows with every change of the cursor; who decided on an older one decides again.
        paused: Whether somebody paused it with headrace.
        paused_by: Who.
        paused_in_prefect: Whether it is paused on Prefect's page.
        fired_at: When its last run was created.
        problem: Why it can't be looked at just now, or None.
    """

    id: int
    pipeline: str
    name: str
    kind: str
    rule: str
    cursor: dict[str, Any]
    rev: int
    paused: bool
    paused_by: str | None = None
    paused_in_prefect: bool = False
    created_at: datetime
    fired_at: datetime | None = None
    problem: str | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it fires nothing now, whoever paused it."""
        return self.paused or self.paused_in_prefect


class FiringRequest(Record):
    """One decision of a trigger that is to be recorded.

    Attributes:
        key: What makes it the only one: a logical time, table version or set of files.
        decision: `run` makes a run, unless the pipeline is busy and skips.
        run: The run, for `run`.
        skip_if_busy: Whether it is skipped while as many runs as may be are at work.
        facts: What the run's parameters were filled in with.
    """

    key: str
    decision: Decision = "run"
    reason: str | None = None
    logical_time: datetime | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    run: RunRequest | None = None
    skip_if_busy: bool = False


class FiringRecord(Record):
    """What became of one logical time, table version, set of files or end of a pipeline."""

    id: int
    pipeline: str
    trigger: str
    key: str
    decision: Decision
    reason: str | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    logical_time: datetime | None = None
    created_at: datetime
    run_id: str | None = None


class HandledFile(Record):
    """A file, as it was when a run was given it.

    Attributes:
        digest: Of path, size and time.
    """

    digest: str
    path: str
    size: int
    mtime_ns: int
