"""What the ledger keeps, as plain values: runs, repairs, attempts, and their states."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict

from headrace.context import Lineage

State = Literal[
    "queued",
    "running",
    "success",
    "failed",
    "timed_out",
    "cancelled",
    "crashed",
    "upstream_failed",
    "excluded",
]
RunIf = Literal[
    "all_success",
    "at_least_one_success",
    "none_failed",
    "all_done",
    "at_least_one_failed",
    "all_failed",
]

STATES: tuple[State, ...] = get_args(State)
RUN_IFS: tuple[RunIf, ...] = get_args(RunIf)
ACTIVE: frozenset[State] = frozenset({"queued", "running"})
GOOD: frozenset[State] = frozenset({"success", "excluded"})

LEASE_S = float(os.environ.get("HEADRACE_LEASE_S", "45"))
"""How long a lease lasts without a heartbeat; longer than an outage of the ledger of 30 s."""

BEAT_S = LEASE_S / 4.5
"""How often a holder renews its lease."""

NOT_CALLED = "the pipeline no longer calls it"
"""Reason of an exclusion that lasts only until the pipeline calls the task again."""

# Without vowels and look-alikes: ids are read out and typed.
_LETTERS = "23456789bcdfghjkmnpqrstvwxz"


class Record(BaseModel):
    """Base of the records: frozen, and JSON with `model_dump(mode="json")`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorInfo(Record):
    """Why an attempt did not succeed.

    Attributes:
        type: Name of the exception's class.
        message: Its text.
        traceback: The user's part of the traceback, or an empty string.
        retryable: Whether another try may help; never for a `UserError`.
    """

    type: str
    message: str
    traceback: str = ""
    retryable: bool = True


class CodeVersion(Record):
    """The code that ran.

    Attributes:
        commit: Git commit, or None outside a repository.
        dirty: Whether the work tree had changes.
    """

    commit: str | None = None
    dirty: bool = False


class RunRecord(Record):
    """One execution of a pipeline with parameters.

    Attributes:
        number: Place in the ledger; the order of runs, whatever the clock says.
        id: Short, sortable, readable: `260801-142530-k3fx`.
        pipeline: Name of the pipeline.
        entrypoint: `module.function` of the flow.
        parameters: Its parameters, as JSON values.
        environment: Name of the environment.
        user: Who started it.
        code: The code of the first execution; a repair has its own.
        state: State of the latest repair.
        parent_run_id: The run that started this one.
        trigger_key: What makes it the only run of its logical time, table version or files.
        tags: Free words for filters and costs.
    """

    number: int
    id: str
    pipeline: str
    entrypoint: str
    parameters: dict[str, Any]
    environment: str
    user: str
    code: CodeVersion
    state: State
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    mlflow_run_id: str | None = None
    prefect_flow_run_id: str | None = None
    parent_run_id: str | None = None
    trigger_key: str | None = None
    tags: dict[str, str] = {}


class RepairRecord(Record):
    """One pass over a run: 0 is the original, 1 the first repair.

    Attributes:
        seq: 0, 1, 2, ... within the run.
        parameters: Overrides of the run's parameters, for the tasks that run again.
        tasks: The tasks that were asked for; empty means every unsuccessful one.
        with_dependents: Whether what depends on `tasks` runs again too.
        profiles: Overrides of the tasks' profiles, by task.
        planned: Names of what it set out to run; what it does not come to is owed.
        token: Fence token of the process that drives it; None before that, and once it was fenced.
        cancel_requested_at: When somebody asked for a cancel.
    """

    id: int
    run_id: str
    seq: int
    parameters: dict[str, Any] = {}
    tasks: tuple[str, ...] = ()
    with_dependents: bool = False
    profiles: dict[str, str] = {}
    planned: tuple[str, ...] = ()
    code: CodeVersion = CodeVersion()
    user: str = ""
    state: State
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    prefect_flow_run_id: str | None = None
    cancel_requested_at: datetime | None = None
    token: str | None = None
    lease_s: float = LEASE_S
    lease_expires_at: datetime | None = None
    host: str = ""
    pid: int | None = None


class Share(Record):
    """What an attempt takes of a limit.

    Attributes:
        most: How much all live attempts may take together.
        take: How much this one takes.
    """

    most: int
    take: int = 1


def _share(given: Any) -> Any:
    """A bare number is a limit of which one is taken."""
    return Share(most=given) if isinstance(given, int) else given


def _amounts(given: Any) -> Any:
    """Earlier ledgers hold the names alone."""
    return dict.fromkeys(given, 1) if isinstance(given, list | tuple) else given


class AttemptRecord(Record):
    """One try of one task, or of one item of a for-each.

    Attributes:
        id: Grows over the whole ledger.
        repair_seq: The repair that it belongs to.
        key: Key of the for-each item, or an empty string.
        number: 1, 2, 3, ... within run, task and key, without gaps.
        run_if: The task's condition.
        depends_on: Names of what it waits for: `task`, `task/key`; `task` means all its items too.
        limits: How much it takes of each limit while it lives.
        token: Fence token; None when it never ran, and once it was fenced.
        lease_expires_at: For people; what counts is in the leases' own clock.
        inputs: Table versions that it read.
        outputs: Table versions that it made.
        result: What the task returned, as JSON.
        log_path: Its log file.
        usage: Seconds, memory and bytes that it took.
        reason: Why it was skipped, or marked by hand.
        marked_by: Who marked it by hand.
        reused_from: The attempt whose result this one stands for.
    """

    id: int
    run_id: str
    pipeline: str
    repair_seq: int
    task: str
    key: str = ""
    number: int
    state: State
    run_if: RunIf = "all_success"
    depends_on: tuple[str, ...] = ()
    profile: str | None = None
    engine: str | None = None
    limits: Annotated[dict[str, int], BeforeValidator(_amounts)] = {}
    host: str = ""
    pid: int | None = None
    token: str | None = None
    lease_s: float = LEASE_S
    lease_expires_at: datetime | None = None
    inputs: tuple[Lineage, ...] = ()
    outputs: tuple[Lineage, ...] = ()
    result: Any = None
    error: ErrorInfo | None = None
    log_path: str | None = None
    usage: dict[str, Any] | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    mlflow_run_id: str | None = None
    prefect_task_run_id: str | None = None
    reason: str | None = None
    marked_by: str | None = None
    reused_from: int | None = None

    @property
    def name(self) -> str:
        """`task`, or `task/key` for an item of a for-each."""
        return node_name(self.task, self.key)


class RunRequest(Record):
    """What a new run is made of; the fields are those of `RunRecord` and its repair 0."""

    pipeline: str
    entrypoint: str
    parameters: dict[str, Any] = {}
    environment: str = "local"
    user: str = ""
    code: CodeVersion = CodeVersion()
    profiles: dict[str, str] = {}
    parent_run_id: str | None = None
    trigger_key: str | None = None
    tags: dict[str, str] = {}


class RepairRequest(Record):
    """What a repair is asked to do.

    Attributes:
        tasks: Names to run again (`task` means all its items); empty means every unsuccessful one
            and all that depends on it.
        with_dependents: With `tasks`: also run what depends on them.
        parameters: Overrides, for the tasks that run again.
        profiles: Overrides of profiles, by task.
        user: Who asks.
        code: The code that the repair runs.
    """

    tasks: tuple[str, ...] = ()
    with_dependents: bool = False
    parameters: dict[str, Any] = {}
    profiles: dict[str, str] = {}
    user: str = ""
    code: CodeVersion = CodeVersion()


class AttemptRequest(Record):
    """What is known of an attempt when it starts, or when its task is skipped.

    Attributes:
        limits: What it takes of each limit; a bare number says how many may hold it at once.
    """

    task: str
    key: str = ""
    run_if: RunIf = "all_success"
    depends_on: tuple[str, ...] = ()
    profile: str | None = None
    engine: str | None = None
    limits: dict[str, Annotated[Share, BeforeValidator(_share)]] = {}
    log_path: str | None = None
    prefect_task_run_id: str | None = None


class Outcome(Record):
    """How an attempt ended."""

    state: Literal["success", "failed", "timed_out", "cancelled", "crashed"]
    result: Any = None
    inputs: tuple[Lineage, ...] = ()
    outputs: tuple[Lineage, ...] = ()
    error: ErrorInfo | None = None
    usage: dict[str, Any] | None = None
    reason: str | None = None


class Reaped(Record):
    """What a look over the leases found dead.

    Attributes:
        attempts: Attempts that are now crashed.
        repairs: Repairs whose driver is gone; their runs are now crashed.
    """

    attempts: tuple[AttemptRecord, ...] = ()
    repairs: tuple[RepairRecord, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.attempts or self.repairs)


def node_name(task: str, key: str = "") -> str:
    """`task`, or `task/key`."""
    return f"{task}/{key}" if key else task


def split_name(name: str) -> tuple[str, str]:
    """Task and key of a name; a key may hold slashes, a task may not.

    Example:
        >>> split_name("score/2013-01/EWR")
        ('score', '2013-01/EWR')
    """
    task, _, key = name.partition("/")
    return task, key


def new_run_id(now: datetime) -> str:
    """A run id that nobody has: the time in UTC to the second, and four random letters."""
    return f"{now:%y%m%d-%H%M%S}-{''.join(secrets.choice(_LETTERS) for _ in range(4))}"


def new_token() -> str:
    """A fence token: who shows it held the lease, and the ledger knows whether it still does."""
    return secrets.token_hex(8)


def merged_parameters(run: RunRecord, repair: RepairRecord) -> Mapping[str, Any]:
    """The run's parameters with the repair's overrides on top."""
    return {**run.parameters, **repair.parameters}
