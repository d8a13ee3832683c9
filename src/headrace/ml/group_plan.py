"""Which groups are trained where: sizes, a memory guard and bins of equal work. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

OnLarge = Literal["fail", "sample", "iterate", "alone", "leave"]

MIB: Final = 2**20
# A group is in memory as Arrow, as pandas, and in what its fit makes of it.
COPIES: Final = 3
# Tasks per worker: enough that one that turns out slow is made up for by the others.
_BINS_PER_WORKER: Final = 4


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group of a table.

    Attributes:
        number: From 0, in the order of the keys.
        key: Values of the `by` columns.
        rows: Rows.
        bytes: Size as a pandas frame.
        fingerprint: Changes with the group's rows, not with their order.
    """

    number: int
    key: tuple[Any, ...]
    rows: int
    bytes: int
    fingerprint: str = field(repr=False)

    @property
    def need_mib(self) -> float:
        """Memory that training it takes, in MiB."""
        return self.bytes * COPIES / MIB

    def name(self, by: Sequence[str]) -> str:
        """The group as people read it: `carrier=AA, month=3`."""
        return name_of(self.key, by)


def name_of(key: Sequence[Any], by: Sequence[str]) -> str:
    """A key as people read it.

    Example:
        >>> name_of(("AA", 3), ["carrier", "month"])
        'carrier=AA, month=3'
    """
    return ", ".join(f"{name}={value}" for name, value in zip(by, key, strict=True))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where groups go.

    Attributes:
        bins: Numbers of the groups that are trained one after the other in one task; the bin with
            the most work first.
        large: Groups that don't fit into a worker's memory, largest first.
    """

    bins: tuple[tuple[int, ...], ...]
    large: tuple[Group, ...]


def plan_groups(groups: Sequence[Group], *, workers: int, budget_mib: float) -> Plan:
    """Spread groups over bins of about the same number of rows.

    Largest first, each to the bin with the least work so far: no bin has more than its share by
    more than one group, and a group that is larger than any share has a bin of its own.

    Args:
        groups: The groups to train.
        workers: Tasks that run at once.
        budget_mib: Memory of one worker.

    Example:
        >>> sizes = [Group(number=n, key=(n,), rows=r, bytes=r, fingerprint="")
        ...          for n, r in enumerate([5, 90, 10, 5])]
        >>> plan_groups(sizes, workers=1, budget_mib=1).bins
        ((1,), (2,), (0,), (3,))
    """
    large = [group for group in groups if group.need_mib > budget_mib]
    kept = sorted(set(groups) - set(large), key=lambda group: (-group.rows, group.number))
    count = min(len(kept), max(1, workers) * _BINS_PER_WORKER)
    heap = [(0, place) for place in range(count)]
    bins: list[list[Group]] = [[] for _ in range(count)]
    for group in kept:
        load, place = heapq.heappop(heap)
        bins[place].append(group)
        heapq.heappush(heap, (load + group.rows, place))
    bins.sort(key=lambda found: (-sum(group.rows for group in found), found[0].number))
    return Plan(
        bins=tuple(tuple(group.number for group in found) for found in bins),
        large=tuple(sorted(large, key=lambda group: (-group.bytes, group.number))),
    )


def sample_rows(group: Group, budget_mib: float) -> int:
    """How many rows of a large group fit, with a tenth of the memory to spare; at least one."""
    return max(1, int(group.rows * 0.9 * budget_mib / group.need_mib))


def marked(group: Group, on_large: OnLarge, *, budget_mib: float, seed: int) -> str:
    """The group's fingerprint, with what its model would be made of beside its rows."""
    if group.need_mib <= budget_mib or on_large not in ("sample", "iterate"):
        return group.fingerprint
    if on_large == "iterate":
        return f"{group.fingerprint}-batches"
    return f"{group.fingerprint}-sample-{sample_rows(group, budget_mib)}-{seed}"
