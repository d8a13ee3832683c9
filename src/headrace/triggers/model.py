"""What a trigger is made of, and what can be said about it without looking at anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

On = Literal["success", "failure", "end"]
CatchUp = Literal["last", "all", "none"]
WhenBusy = Literal["skip", "queue"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The usual anchor of an interval."""

_COMMON = frozenset({"name", "kind", "key", "time", "date"})


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Base of the triggers.

    Attributes:
        name: Tells it from the pipeline's other triggers; the ledger keeps its cursor under it.
        parameters: Parameters of the runs that it starts, perhaps with `{{ trigger.FIELD }}`.
        kind: `cron`, `interval`, `table`, `files`, `continuous` or `pipeline`.
        fields: Names that a template may use.
    """

    name: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = ""
    fields: ClassVar[frozenset[str]] = _COMMON

    @property
    def rule(self) -> str:
        """The rule in a few words, for people."""
        return self.kind


@dataclass(frozen=True, kw_only=True)
class Cron(Trigger):
    """Times by a cron expression in a time zone."""

    expression: str
    tz: str
    kind: ClassVar[str] = "cron"
    fields: ClassVar[frozenset[str]] = _COMMON | {"previous_time"}

    @property
    def rule(self) -> str:
        """Expression and zone."""
        return f"{self.expression} {self.tz}"


@dataclass(frozen=True, kw_only=True)
class Interval(Trigger):
    """Times at equal distances from an anchor, whatever the clocks on the walls do."""

    every_s: int
    anchor: datetime = EPOCH
    kind: ClassVar[str] = "interval"
    fields: ClassVar[frozenset[str]] = _COMMON | {"previous_time"}

    @property
    def rule(self) -> str:
        """Distance and anchor."""
        anchor = "" if self.anchor == EPOCH else f" from {self.anchor.isoformat()}"
        return f"every {self.every_s} s{anchor}"


@dataclass(frozen=True, kw_only=True)
class TableUpdate(Trigger):
    """New data in Delta tables.

    Attributes:
        tables: Names in the lake, paths or addresses.
        when: `any` of them changed, or `all` did since the last run.
        quiet_s: Wait until nothing has changed for so long.
        min_gap_s: Time between two runs of this trigger at least.
        existing: Whether data that is there at the first look counts as new.
    """

    tables: tuple[str, ...]
    when: Literal["any", "all"] = "any"
    quiet_s: float = 0.0
    min_gap_s: float = 0.0
    existing: bool = True
    kind: ClassVar[str] = "table"
    fields: ClassVar[frozenset[str]] = _COMMON | {
        "table",
        "version",
        "previous_version",
        "versions",
        "previous_versions",
    }

    @property
    def rule(self) -> str:
        """The tables."""
        joined = f" {'or' if self.when == 'any' else 'and'} ".join(self.tables)
        return joined + _knobs(quiet=self.quiet_s, gap=self.min_gap_s)


@dataclass(frozen=True, kw_only=True)
class FileArrival(Trigger):
    """New files in a folder or below a prefix.

    Attributes:
        pattern: A path or `s3://` address with `*`, `?`, `[...]` or `**`.
        quiet_s: Wait until no file has come for so long.
        min_gap_s: Time between two runs of this trigger at least.
        settle_s: A file counts once its size and time have stood still for so long.
        max_files: Files of one run at most; the others wait for the next.
        existing: Whether files that are there at the first look count as new.
    """

    pattern: str
    quiet_s: float = 0.0
    min_gap_s: float = 0.0
    settle_s: float = 5.0
    max_files: int = 1000
    existing: bool = True
    kind: ClassVar[str] = "files"
    fields: ClassVar[frozenset[str]] = _COMMON | {"files", "count"}

    @property
    def rule(self) -> str:
        """The pattern."""
        return self.pattern + _knobs(quiet=self.quiet_s, gap=self.min_gap_s, settle=self.settle_s)


@dataclass(frozen=True, kw_only=True)
class Continuous(Trigger):
    """Again and again, one run at a time.

    Attributes:
        pause_s: Between the end of a good run and the next one.
        backoff_s: After the first failure; each further one doubles it.
        backoff_max_s: The longest wait.
    """

    pause_s: float = 0.0
    backoff_s: float = 10.0
    backoff_max_s: float = 600.0
    kind: ClassVar[str] = "continuous"
    fields: ClassVar[frozenset[str]] = _COMMON | {"number", "failures"}

    @property
    def rule(self) -> str:
        """The waits."""
        waits = f"backoff {self.backoff_s:g} to {self.backoff_max_s:g} s"
        return f"pause {self.pause_s:g} s, {waits}"


@dataclass(frozen=True, kw_only=True)
class PipelineEnd(Trigger):
    """The end of a run of another pipeline.

    Attributes:
        pipeline: Name of the other pipeline.
        on: Which ends count.
    """

    pipeline: str
    on: On = "success"
    kind: ClassVar[str] = "pipeline"
    fields: ClassVar[frozenset[str]] = _COMMON | {"run_id", "state", "pipeline"}

    @property
    def rule(self) -> str:
        """Pipeline and kind of end."""
        return f"{self.on} of {self.pipeline}"


Schedule = Cron | Interval


@dataclass(frozen=True, kw_only=True)
class TriggerPolicy:
    """How a pipeline's triggers work together.

    Attributes:
        triggers: The triggers, each with a name of its own.
        max_concurrent: How many runs of the pipeline may be at work at once.
        when_busy: What happens to a time, or to another pipeline's end, that finds them all at
            work: it is skipped, or its run waits.
        catch_up: Which of the times that passed while nobody served get a run.
        notify: Prefect blocks that are told, as `type/name`.
        long_after_s: A run that takes longer is told of; None for never.
    """

    triggers: tuple[Trigger, ...] = ()
    max_concurrent: int = 1
    when_busy: WhenBusy = "skip"
    catch_up: CatchUp = "last"
    notify: tuple[str, ...] = ()
    long_after_s: float | None = None

    def find(self, name: str) -> Trigger | None:
        """The trigger of that name."""
        return next((trigger for trigger in self.triggers if trigger.name == name), None)


def default_name(trigger: Trigger) -> str:
    """A name made of a trigger's kind and rule: lower case, digits and dashes.

    Example:
        >>> default_name(Cron(expression="0 6 * * 1-5", tz="Europe/Paris"))
        'cron-0-6-any-any-1-5-europe-paris'
        >>> default_name(TableUpdate(tables=("lake/flights",), quiet_s=60))
        'table-lake-flights'
    """
    match trigger:
        case TableUpdate():
            text = "-".join(trigger.tables)
        case FileArrival():
            text = trigger.pattern
        case PipelineEnd():
            text = f"{trigger.on}-{trigger.pipeline}"
        case Continuous():
            text = ""
        case _:
            text = trigger.rule
    words = re.sub(r"[^a-z0-9]+", "-", text.lower().replace("*", " any "))
    return f"{trigger.kind}-{words}".strip("-")[:80].rstrip("-")


def _knobs(**seconds: float) -> str:
    given = [f"{name} {value:g} s" for name, value in seconds.items() if value]
    return f" ({', '.join(given)})" if given else ""
