"""`ml.advise`: what a table's log and a profile say about how to work on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.context import current_context
from headrace.delta.pinning import pin
from headrace.delta.reading import plain_spec, resolve_columns
from headrace.delta.schema import Field, Primitive
from headrace.delta.snapshot import Snapshot
from headrace.delta.statistics import live_rows, stats_columns
from headrace.exceptions import MlRequestError, ProjectNotFoundError
from headrace.ml.advice import (
    GOALS,
    Advice,
    Goal,
    Machine,
    Speed,
    Speeds,
    TableFacts,
    advise_on,
)
from headrace.ml.group_rows import NUMBER_BYTES, OBJECT_BYTES, TEXT_BYTES
from headrace.ml.memory import profile_memory_mib
from headrace.profiles.project import find_project, state_path
from headrace.tables import TableRef

SPEEDS_FILE: Final = "speeds.json"

_MIB: Final = 2**20
_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double", "boolean")
_TIMES: Final = ("timestamp", "timestamp_ntz")
# Compressed Parquet grows about this much, where the log does not tell the number of rows.
_EXPANSION: Final = 5


def advise(
    table: TableRef | str | Path,
    *,
    goal: Goal = "train",
    by: Sequence[str] | str = (),
    columns: Sequence[str] | None = None,
    n_trials: int | None = None,
    machine: Machine | None = None,
    speeds: Speeds | None = None,
) -> Advice:
    """Say whether one process is enough for a table, else which engine and how many workers.

    Only the table's log is read. The speeds that engines are compared by are measured:
    `benchmarks/advice.py` does it for the machine that it runs on.

    Args:
        table: A `TableRef`, a name in the lake, a path or an address.
        goal: `train`, `tune` or `score`.
        by: Group columns, where a model for each group is wanted.
        columns: Columns that are used; all by default.
        n_trials: Trials of a study, for `tune`.
        machine: Cores and memory; those of the task's profile by default.
        speeds: Measured speeds; see `load_speeds`.

    Raises:
        MlRequestError: The goal is unknown.
        DataError: The table can't be read right.

    Example:
        >>> print(advise("flights", goal="score"))  # doctest: +SKIP
    """
    if goal not in GOALS:
        raise MlRequestError(
            problem=f"goal={goal!r} does not exist.",
            found=f"Known: {', '.join(GOALS)}.",
            fix='goal="train"',
        )
    snapshot, ref = pin(table)
    names = [by] if isinstance(by, str) else list(by)
    facts = table_facts(snapshot, ref, by=names, columns=columns)
    return advise_on(
        facts,
        machine or _own_machine(),
        speeds or load_speeds(speeds_file()),
        goal=goal,
        by=", ".join(names) or None,
        n_trials=n_trials,
    )


def table_facts(
    snapshot: Snapshot, ref: TableRef, *, by: Sequence[str], columns: Sequence[str] | None
) -> TableFacts:
    """What the log tells about the size of a table."""
    spec = plain_spec(snapshot)
    keys = resolve_columns(spec, by)
    used = spec.schema.names if columns is None else resolve_columns(spec, [*columns, *keys])
    fields = [field for field in snapshot.schema.fields if field.name in used]
    stored = snapshot.size_bytes / _MIB
    rows = snapshot.row_count
    if rows is None:
        memory = stored * _EXPANSION * len(fields) / max(1, len(snapshot.schema.fields))
    else:
        memory = rows * sum(_column_bytes(snapshot, field) for field in fields) / _MIB
    groups = _group_rows(snapshot, keys)
    counts = list(groups.values()) if groups else _known(live_rows(snapshot.files).to_pylist())
    mean = sum(counts) / len(counts) if counts else 0
    return TableFacts(
        table=str(ref),
        rows=rows,
        columns=len(fields),
        stored_mib=stored,
        memory_mib=memory,
        files=snapshot.file_count,
        groups=len(groups) if groups else None,
        largest_group=max(groups.values()) if groups else None,
        skew=max(counts) / mean if mean else 1.0,
    )


def _column_bytes(snapshot: Snapshot, field: Field) -> float:
    """Bytes of a value as pandas holds it; of a text by the lengths of the bounds in the log."""
    name = field.type.name if isinstance(field.type, Primitive) else ""
    if name in (*_NUMBERS, *_TIMES):
        return NUMBER_BYTES
    if name in ("string", "binary") and field.name not in snapshot.partition_columns:
        wanted = [((side, field.physical_name), pa.string()) for side in ("minValues", "maxValues")]
        found = stats_columns(snapshot.files, wanted)
        lengths = [pc.mean(pc.utf8_length(side)).as_py() for side in found]
        known = [length for length in lengths if length is not None]
        return TEXT_BYTES + (sum(known) / len(known) if known else NUMBER_BYTES)
    return TEXT_BYTES + NUMBER_BYTES if name == "string" else OBJECT_BYTES


def _group_rows(snapshot: Snapshot, by: Sequence[str]) -> dict[Any, int] | None:
    """Rows of each group, where groups are partitions and files tell their rows."""
    if not by or not set(by) <= set(snapshot.partition_columns):
        return None
    rows = live_rows(snapshot.files)
    if rows.null_count:
        return None
    values = [snapshot.partition_values(name).to_pylist() for name in by]
    found: dict[Any, int] = {}
    for key, count in zip(zip(*values, strict=True), rows.to_pylist(), strict=True):
        found[key] = found.get(key, 0) + count
    return found or None


def _known(counts: Sequence[int | None]) -> list[int]:
    return [count for count in counts if count is not None]


def _own_machine() -> Machine:
    context = current_context()
    return Machine(profile="", cores=context.cores, memory_mib=profile_memory_mib())


def speeds_file(root: Path | None = None) -> Path | None:
    """Where `benchmarks/advice.py --save` puts its speeds; None outside of a project."""
    try:
        return state_path(root or find_project()) / SPEEDS_FILE
    except ProjectNotFoundError:
        return None


def load_speeds(path: Path | None) -> Speeds:
    """Speeds that were measured on this machine, or those that come with the library.

    Args:
        path: What `benchmarks/advice.py --save` has written; may be missing.
    """
    if path is None or not path.is_file():
        return DEFAULT_SPEEDS
    return speeds_from(json.loads(path.read_text()))


def speeds_from(values: Mapping[str, Any]) -> Speeds:
    """Speeds from JSON values."""
    return Speeds(
        train={name: Speed(**speed) for name, speed in values["train"].items()},
        score={name: Speed(**speed) for name, speed in values["score"].items()},
        origin=str(values["origin"]),
    )


DEFAULT_SPEEDS: Final = speeds_from(
    {
        "origin": "rough figures, not of this machine: benchmarks/advice.py --save measures it",
        "train": {
            "python": {"start_s": 0.0, "mib_per_s": 20.0},
            "spark": {"start_s": 10.0, "mib_per_s": 15.0},
            "ray": {"start_s": 8.0, "mib_per_s": 15.0},
        },
        "score": {
            "python": {"start_s": 0.0, "mib_per_s": 40.0},
            "spark": {"start_s": 10.0, "mib_per_s": 30.0},
            "ray": {"start_s": 8.0, "mib_per_s": 30.0},
        },
    }
)
