"""Is one process enough, which engine, how many workers: pure, from sizes and measured speeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Goal = Literal["train", "tune", "score"]
Engine = Literal["python", "spark", "ray"]

GOALS: Final[tuple[Goal, ...]] = ("train", "tune", "score")
# One process holds Arrow, pandas and what a library makes of them.
COPIES: Final = 3
# Python with pandas and scikit-learn, before it has any rows.
_BARE_MIB: Final = 250
# What ml.tune copies to a worker at most.
BROADCAST_MIB: Final = 256
_TRIALS_PER_WORKER: Final = 4
# Another engine has to be this much faster, and by this many seconds, to be worth its upkeep.
_WORTH: Final = 0.8
_WORTH_S: Final = 10.0
_SKEWED: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What one engine takes for one kind of work.

    Attributes:
        start_s: Seconds before the first row: the engine's start and its first job.
        mib_per_s: MiB (in memory) that one core works through in a second after that.
    """

    start_s: float
    mib_per_s: float

    def seconds(self, mib: float, cores: int) -> float:
        """What so much data takes."""
        return self.start_s + mib / (self.mib_per_s * max(1, cores))


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Measured speeds, by kind of work and engine; `python` is one process on one core.

    Attributes:
        train: A small model for each group, or one for all rows.
        score: Predictions with a model that is small against the rows.
        origin: Where they were measured.
    """

    train: Mapping[str, Speed]
    score: Mapping[str, Speed]
    origin: str

    def of(self, goal: Goal) -> Mapping[str, Speed]:
        """The speeds for a goal; a trial of a study trains."""
        return self.score if goal == "score" else self.train


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """A table's size, as its log tells it.

    Attributes:
        table: Name and version.
        rows: Rows, or None when files have no statistics.
        columns: Columns that are used.
        stored_mib: MiB of the data files.
        memory_mib: MiB as pandas, estimated.
        files: Data files.
        groups: Groups by the wanted columns, or None when the log doesn't tell.
        largest_group: Rows of the largest group, or None.
        skew: Rows of the largest group (or file) against the mean.
    """

    table: str
    rows: int | None
    columns: int
    stored_mib: float
    memory_mib: float
    files: int
    groups: int | None = None
    largest_group: int | None = None
    skew: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a profile gives.

    Attributes:
        profile: Its name; empty for that of the running task.
        cores: Cores.
        memory_mib: Memory of all processes together.
    """

    profile: str
    cores: int
    memory_mib: float


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do, and why.

    Attributes:
        goal: `train`, `tune` or `score`.
        one_node: Whether one process of this profile is enough.
        engine: `python` (one process), `spark` or `ray`.
        workers: Workers to use.
        broadcast: Whether data should be copied to each worker; None where that is no question.
        reasons: Sentences with the numbers, most important first.
        seconds: Estimated seconds by engine; an engine that lacks the memory is left out.
        table: What was known about the table.
        machine: What was known about the profile.
    """

    goal: Goal
    one_node: bool
    engine: Engine
    workers: int
    broadcast: bool | None
    reasons: tuple[str, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    table: TableFacts
    machine: Machine

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        alone = "one process" if self.workers == 1 else "processes of one node"
        place = alone if self.engine == "python" else self.engine.title()
        workers = f", {self.workers} workers" if self.workers > 1 else ""
        copied = {True: ", data copied to each worker", False: ", data read from the table"}
        head = f"{self.goal} {self.table.table}: {place}{workers}"
        head += copied.get(self.broadcast, "") if self.broadcast is not None else ""
        return "\n".join([head, *(f"- {reason}" for reason in self.reasons)])


def advise_on(
    table: TableFacts,
    machine: Machine,
    speeds: Speeds,
    *,
    goal: Goal = "train",
    by: str | None = None,
    n_trials: int | None = None,
) -> Advice:
    """Decide from numbers; single node first.

    Args:
        table: The table.
        machine: The profile.
        speeds: Measured speeds.
        goal: What is to be done with the table.
        by: Names of the group columns, where a model per group is wanted.
        n_trials: Trials of the study, for `tune`.
    """
    need = table.memory_mib * COPIES + _BARE_MIB
    fits = need <= machine.memory_mib
    reasons = [_memory(table, machine, need, fits=fits)]
    if goal == "tune":
        return _advise_tune(table, machine, reasons, fits=fits, n_trials=n_trials)
    seconds = _seconds(table, machine, speeds, goal, fits=fits, grouped=by is not None)
    engine = _choose(seconds)
    reasons.append(_compared(seconds, engine, machine, speeds.origin))
    if table.skew >= _SKEWED:
        what = "group" if table.groups else "file"
        reasons.append(
            f"The largest {what} has {table.skew:.1f} times the rows of the mean one: one worker "
            "is busy with it while others wait."
        )
    if by is not None:
        reasons.append(_groups(table, machine, by))
    if goal == "train" and by is None and engine != "python":
        reasons.append(_one_model(table, machine))
    workers = 1 if engine == "python" else _workers(table, machine)
    return Advice(
        goal=goal,
        one_node=fits,
        engine=engine,
        workers=workers,
        broadcast=None,
        reasons=tuple(reasons),
        seconds=seconds,
        table=table,
        machine=machine,
    )


def _memory(table: TableFacts, machine: Machine, need: float, *, fits: bool) -> str:
    verdict = "fit into" if fits else "do not fit into"
    place = f"profile {machine.profile}" if machine.profile else "this task"
    return (
        f"{_rows(table)} in {table.columns} columns are {table.memory_mib:,.0f} MiB as pandas "
        f"({table.stored_mib:,.0f} MiB stored); with the copies that are made of them {need:,.0f} "
        f"MiB, which {verdict} the {machine.memory_mib:,.0f} MiB of {place}."
    )


def _seconds(
    table: TableFacts, machine: Machine, speeds: Speeds, goal: Goal, *, fits: bool, grouped: bool
) -> dict[str, float]:
    known = speeds.of(goal)
    found = {}
    if fits:
        found["python"] = known["python"].seconds(table.memory_mib, 1)
    cores = machine.cores
    if grouped and table.groups:
        # No more at once than there are groups, and not before the largest is done.
        cores = max(1, min(cores, table.groups, math.floor(table.groups / table.skew)))
    for engine in ("ray",) if goal == "train" and not grouped else ("spark", "ray"):
        found[engine] = known[engine].seconds(table.memory_mib, cores)
    return found


def _choose(seconds: Mapping[str, float]) -> Engine:
    best: Engine = "spark" if seconds.get("spark", math.inf) <= seconds["ray"] else "ray"
    alone = seconds.get("python")
    if alone is None:
        return best
    gain = alone - seconds[best]
    return best if seconds[best] < _WORTH * alone and gain >= _WORTH_S else "python"


def _compared(seconds: Mapping[str, float], engine: Engine, machine: Machine, origin: str) -> str:
    names = {
        "python": "one process",
        "spark": f"Spark on {machine.cores} cores",
        "ray": f"Ray on {machine.cores} cores",
    }
    parts = ", ".join(f"{names[name]} {value:,.0f} s" for name, value in seconds.items())
    why = {
        "python": f"another engine has to save a fifth and {_WORTH_S:.0f} s to be worth it",
        "spark": "it is the fastest",
        "ray": "it is the fastest",
    }
    rest = why[engine] if "python" in seconds else "one process lacks the memory"
    return f"Estimated: {parts} ({origin}); {rest}."


def _workers(table: TableFacts, machine: Machine) -> int:
    """No more workers than cores, groups, or pieces of 16 MiB that a read is cut into."""
    pieces = max(table.files, math.ceil(table.stored_mib / 16))
    return max(1, min(machine.cores, table.groups or pieces))


def _groups(table: TableFacts, machine: Machine, by: str) -> str:
    if table.groups is None or table.largest_group is None or not table.rows:
        return (
            f"Groups by {by} are no partitions, so the log does not tell their sizes; "
            "ml.train_per_group counts them first."
        )
    largest = table.memory_mib * table.largest_group / table.rows * COPIES
    share = machine.memory_mib / machine.cores
    fits = "fits into" if largest <= share else "does not fit into"
    return (
        f"{table.groups} groups by {by}; the largest has {table.largest_group:,} rows and needs "
        f"{largest:,.0f} MiB, which {fits} a worker's share of {share:,.0f} MiB"
        + ("." if largest <= share else ': on_large="sample", "iterate" or "alone".')
    )


def _one_model(table: TableFacts, machine: Machine) -> str:
    need = table.memory_mib * 2 + _BARE_MIB * machine.cores
    if need <= machine.memory_mib:
        return f"ml.train_xgboost shares the rows out: its workers need {need:,.0f} MiB together."
    return (
        f"Even shared out the rows need {need:,.0f} MiB: use a profile with that much memory, "
        "fewer columns, or a sample."
    )


def _advise_tune(
    table: TableFacts,
    machine: Machine,
    reasons: list[str],
    *,
    fits: bool,
    n_trials: int | None,
) -> Advice:
    each = table.memory_mib * (COPIES - 1) + _BARE_MIB
    by_memory = max(1, math.floor(machine.memory_mib / each))
    by_trials = machine.cores if n_trials is None else max(1, n_trials // _TRIALS_PER_WORKER)
    workers = max(1, min(machine.cores, by_memory, by_trials))
    reasons.append(
        f"A trial needs {each:,.0f} MiB, so memory is enough for {by_memory} at once, cores for "
        f"{machine.cores}"
        + ("" if n_trials is None else f", and {n_trials} trials for {by_trials}")
        + f": {workers}."
    )
    copied = table.memory_mib <= BROADCAST_MIB and fits
    size = f"{table.memory_mib:,.0f} MiB"
    reasons.append(
        f"{size} are copied to each worker once: ml.tune(..., data=frame)."
        if copied
        else f"{size} are more than the {BROADCAST_MIB} MiB that are copied to a worker: let the "
        "objective read the columns it needs."
    )
    if not fits:
        reasons.append("One process can't hold all rows: tune on a sample, or a larger profile.")
    reasons.append(
        "A study is one process per trial: local workers of one node are enough until one node "
        "has too few cores."
    )
    return Advice(
        goal="tune",
        one_node=fits,
        engine="python" if fits else "ray",
        workers=workers,
        broadcast=copied,
        reasons=tuple(reasons),
        table=table,
        machine=machine,
    )


def _rows(table: TableFacts) -> str:
    return "An unknown number of rows" if table.rows is None else f"{table.rows:,} rows"
