"""What came of each group: the rows of the table of results, and the first error."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headrace.ml.group_plan import Group
from headrace.tables import TableRef

if TYPE_CHECKING:
    from headrace.ml.group_desk import Outcome

State = Literal["trained", "sampled", "kept", "failed", "killed", "too_large"]
STATES: tuple[State, ...] = ("trained", "sampled", "kept", "failed", "killed", "too_large")


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What came of `ml.train_per_group`.

    Attributes:
        source: The version that was trained on.
        model: Name of the registered model.
        version: Its version; the last one's when nothing had changed.
        results: The table with one row per group: its key, `state`, `rows`, `trained_rows`,
            `seconds`, `error`, `traceback`.
        mlflow_run_id: The run that has the model, or None when no new version was needed.
        states: How many groups are `trained`, `sampled`, `kept`, `failed`, `killed`, `too_large`.
        failed: Why groups have no model, by their names.
    """

    source: TableRef
    model: str
    version: int
    results: TableRef
    mlflow_run_id: str | None
    states: dict[str, int]
    failed: dict[str, str]

    @property
    def uri(self) -> str:
        """What `mlflow.pyfunc.load_model` and `ml.score` take."""
        return f"models:/{self.model}/{self.version}"

    def summary(self) -> dict[str, Any]:
        """JSON values that a task can return."""
        return {
            "source": self.source.model_dump(),
            "model": self.model,
            "version": self.version,
            "uri": self.uri,
            "states": self.states,
            "failed": self.failed,
            "results": self.results.model_dump(),
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        return f"{self.uri}: {parts}"


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One group's row in the table of results."""

    group: Group
    state: State
    trained_rows: int | None
    seconds: float | None
    error: str | None = None
    traceback: str | None = None


def group_rows(
    groups: Sequence[Group],
    outcomes: Mapping[int, Outcome],
    kept: set[tuple[Any, ...]],
    samples: Mapping[int, int],
) -> list[GroupRow]:
    """A row for each group of the table, in their order."""
    return [_row(group, outcomes.get(group.number), group.key in kept, samples) for group in groups]


def _row(
    group: Group, outcome: Outcome | None, is_kept: bool, samples: Mapping[int, int]
) -> GroupRow:
    if is_kept:
        return GroupRow(group=group, state="kept", trained_rows=None, seconds=None)
    if outcome is None:
        error = f"needs {group.need_mib:,.0f} MiB, more than a worker of this profile has"
        return GroupRow(
            group=group, state="too_large", trained_rows=None, seconds=None, error=error
        )
    if outcome.killed is not None:
        return GroupRow(
            group=group, state="killed", trained_rows=None, seconds=None, error=outcome.killed
        )
    if outcome.error is not None:
        told = outcome.error
        return GroupRow(
            group=group,
            state="failed",
            trained_rows=None,
            seconds=outcome.seconds,
            error=f"{told['type']}: {told['message']}",
            traceback=told["traceback"],
        )
    sampled = group.number in samples
    return GroupRow(
        group=group,
        state="sampled" if sampled else "trained",
        trained_rows=samples.get(group.number, group.rows),
        seconds=outcome.seconds,
    )


def result_table(
    rows: Sequence[GroupRow], by: Sequence[str], kinds: Sequence[pa.DataType]
) -> pa.Table:
    """The rows as an Arrow table."""
    keys = {
        name: pa.array([row.group.key[place] for row in rows], kind)
        for place, (name, kind) in enumerate(zip(by, kinds, strict=True))
    }
    return pa.table({
        **keys,
        "state": pa.array([row.state for row in rows], pa.string()),
        "rows": pa.array([row.group.rows for row in rows], pa.int64()),
        "trained_rows": pa.array([row.trained_rows for row in rows], pa.int64()),
        "seconds": pa.array([row.seconds for row in rows], pa.float64()),
        "error": pa.array([row.error for row in rows], pa.string()),
        "traceback": pa.array([row.traceback for row in rows], pa.string()),
    })  # fmt: skip


def raise_first(
    rows: Sequence[GroupRow], outcomes: Mapping[int, Outcome], by: Sequence[str]
) -> None:
    """Raise the user's own error where no group has a model because of it."""
    for row in rows:
        outcome = outcomes.get(row.group.number)
        if row.state != "failed" or outcome is None or outcome.error is None:
            continue
        told = outcome.error
        error = pickle.loads(told["error"]) if told["error"] else None  # noqa: S301 - our worker's
        if not isinstance(error, Exception):
            error = RuntimeError(f"{told['type']}: {told['message']}")
        name = row.group.name(by)
        error.add_note(f"Raised in group {name}, on a worker:\n{told['traceback']}")
        raise error
