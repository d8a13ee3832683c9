"""What a command, or the environment of a deployment, decides about the runs of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from headrace.ledger.records import RepairRecord, RunRecord
from headrace.ledger.repair import RepairPlan


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A run that this process drives in the ledger before its flow run begins.

    Attributes:
        run: The run.
        repair: The pass over it, with the driver's token; 0 for a run that a trigger made.
        plan: What a repair runs again and what it reuses.
    """

    run: RunRecord
    repair: RepairRecord
    plan: RepairPlan | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the pipelines of this process run.

    Attributes:
        env: Name of the environment; None means HEADRACE_ENV, else `local`.
        task_profiles: Profiles by task; they go before HEADRACE_PROFILES.
        root: The project; None means HEADRACE_PROJECT, else where the pipeline's file is.
        claimed: A repair that the next flow run is, instead of a new run.
    """

    env: str | None = None
    task_profiles: dict[str, str] = field(default_factory=dict)
    root: Path | None = None
    claimed: Claimed | None = None


_options: ContextVar[RunOptions | None] = ContextVar("headrace_run_options", default=None)


def run_options() -> RunOptions:
    """The options in force."""
    return _options.get() or RunOptions()


@contextmanager
def use_options(options: RunOptions) -> Iterator[None]:
    """Let `options` decide inside the block."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)
