"""What could be better about a table: file sizes, skew, statistics, what writers have to honour."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.cli.output import size_text

if TYPE_CHECKING:
    from headrace.delta.snapshot import Snapshot

MIB: Final = 1024**2
SMALL_FILE: Final = 16 * MIB
HUGE_FILE: Final = 1024 * MIB
MANY_SMALL: Final = 16
SKEW: Final = 8
WRITE_MODES: Final = ("append", "overwrite", "merge")


class Advice(NamedTuple):
    """One finding.

    Attributes:
        found: What was seen.
        advice: What to do about it.
    """

    found: str
    advice: str


def advise_sizes(sizes: Sequence[int], *, uri: str) -> list[Advice]:
    """Advice on the sizes of data files."""
    if not sizes:
        return []
    found = []
    small = [size for size in sizes if size < SMALL_FILE]
    if len(small) >= MANY_SMALL and len(small) * 2 > len(sizes):
        found.append(
            Advice(
                f"{len(small)} of {len(sizes)} files are below {size_text(SMALL_FILE)}",
                f'join them: spark.sql("OPTIMIZE delta.`{uri}`")',
            )
        )
    middle = statistics.median(sizes)
    largest = max(sizes)
    if len(sizes) > 1 and largest > HUGE_FILE and largest > SKEW * middle:
        found.append(
            Advice(
                f"the largest file has {size_text(largest)}, the median {size_text(middle)}",
                "a read cuts it at its row groups; write with repartition() to spread the rows",
            )
        )
    return found


def advise_partitions(
    sizes: dict[tuple[str | None, ...], int], columns: Sequence[str]
) -> list[Advice]:
    """Advice on how rows are spread over partitions, given bytes by partition."""
    if len(sizes) < 2:  # noqa: PLR2004
        return []
    names = ", ".join(columns)
    middle = statistics.median(sizes.values())
    largest = max(sizes, key=lambda key: sizes[key])
    found = []
    if sizes[largest] > SKEW * middle and sizes[largest] > SMALL_FILE:
        value = ", ".join(map(str, largest))
        found.append(
            Advice(
                f"partition {names} = {value} has {size_text(sizes[largest])}, "
                f"the median {size_text(middle)}",
                f"partition by something more even than {names}, or cluster instead",
            )
        )
    if len(sizes) >= 10 * MANY_SMALL and middle < MIB:
        found.append(
            Advice(
                f"{len(sizes)} partitions by {names}, half of them below {size_text(MIB)}",
                "partition by something coarser",
            )
        )
    return found


def advise(snapshot: Snapshot) -> list[Advice]:
    """All advice on one version of a table."""
    sizes = [size or 0 for size in snapshot.files["size"].to_pylist()]
    found = advise_sizes(sizes, uri=snapshot.uri)
    columns = snapshot.partition_columns
    if columns:
        values = zip(*(snapshot.partition_values(c).to_pylist() for c in columns), strict=True)
        totals: dict[tuple[str | None, ...], int] = {}
        for key, size in zip(values, sizes, strict=True):
            totals[key] = totals.get(key, 0) + size
        found += advise_partitions(totals, columns)
    if sizes and snapshot.row_count is None:
        found.append(
            Advice(
                "some files have no row count in the log",
                "nothing can be skipped in them, and row counts can't be verified: rewrite them",
            )
        )
    return found


def writer_duties(snapshot: Snapshot) -> list[str]:
    """What a writer has to honour in this table, in words."""
    from headrace.delta.schema import walk_fields

    configuration = snapshot.configuration
    duties = [
        f"CHECK {name.removeprefix('delta.constraints.')}: {rule}"
        for name, rule in sorted(configuration.items())
        if name.startswith("delta.constraints.")
    ]
    columns = {
        "NOT NULL": [f.name for f in walk_fields(snapshot.schema) if not f.nullable],
        "generated": _with(snapshot, "delta.generationExpression"),
        "identity": _with(snapshot, "delta.identity.start"),
        "default": _with(snapshot, "CURRENT_DEFAULT"),
        "invariant": _with(snapshot, "delta.invariants"),
    }
    duties += [f"{what}: {', '.join(names)}" for what, names in columns.items() if names]
    for key, words in (
        ("delta.appendOnly", "append only"),
        ("delta.enableChangeDataFeed", "writes its change data feed"),
        ("delta.enableRowTracking", "tracks rows"),
    ):
        if configuration.get(key, "").lower() == "true":
            duties.append(words)
    if snapshot.mapping_mode != "none":
        duties.append(f"column mapping by {snapshot.mapping_mode}")
    return duties


def write_refusals(snapshot: Snapshot) -> dict[str, str]:
    """For each mode that a write from Ray or Python would be refused in: why."""
    from headrace.delta.guards import Guard, check_writable
    from headrace.exceptions import UnsupportedWriteError

    found = {}
    for mode in WRITE_MODES:
        try:
            check_writable(snapshot.uri, snapshot.protocol, snapshot.metadata, mode)
            Guard.of(snapshot.uri, snapshot.metadata)
        except UnsupportedWriteError as error:
            found[mode] = " ".join(part for part in (error.feature, error.found) if part)
    for name in ("delta.enableChangeDataFeed", "delta.enableRowTracking"):
        if "merge" not in found and snapshot.configuration.get(name, "").lower() == "true":
            found["merge"] = f"{name}: only whole files may be removed from it"
    return found


def _with(snapshot: Snapshot, key: str) -> list[str]:
    from headrace.delta.schema import walk_fields

    return [column.name for column in walk_fields(snapshot.schema) if key in column.metadata]
