"""What to change in a profile, from what attempts on it used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.profiles.models import ComputeProfile
from headrace.profiles.units import format_memory

LITTLE_MEMORY: Final = 0.2
MUCH_MEMORY: Final = 0.9

# An attempt that was shorter is mostly the start of its engine.
_SHORTEST_S: Final = 5.0
_ROOM: Final = 1.5
_STEP_MIB: Final = 128
_IDLE_SHARE: Final = 0.3
_SEVERAL: Final = 2


@dataclass(frozen=True, kw_only=True)
class Used:
    """What one attempt used.

    Attributes:
        task: Name of its task.
        wall_s: From start to end.
        cpu_s: CPU seconds, or None when it was not measured.
        peak_memory_mib: The most memory, or None.
        spilled_bytes: What Spark spilled to disk, or None.
        memory_mib: What its profile allowed at that time, or None.
    """

    task: str
    wall_s: float
    cpu_s: float | None = None
    peak_memory_mib: float | None = None
    spilled_bytes: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change of a profile.

    Attributes:
        profile: Its name.
        found: What was seen.
        change: A line for the profile's table in the file.
    """

    profile: str
    found: str
    change: str


def advise_profile(profile: ComputeProfile, attempts: Iterable[Used]) -> list[Advice]:
    """What to change in a profile, the most important first; nothing when it fits.

    Args:
        profile: The profile as it is now.
        attempts: What attempts on it used.

    Example:
        >>> big = ComputeProfile(name="big", cores=8, memory_mib=16384)
        >>> seen = [Used(task="load", wall_s=60, cpu_s=62, peak_memory_mib=900)]
        >>> [advice.change for advice in advise_profile(big, seen)]
        ['memory = "1408MiB"', 'cores = 2']
    """
    seen = [attempt for attempt in attempts if attempt.wall_s >= _SHORTEST_S]
    if not seen:
        return []
    memory = _memory(profile, seen)
    cores = _cores(profile, seen)
    nodes = _nodes(profile, seen)
    return [
        Advice(profile=profile.name, found=found, change=change)
        for found, change in (*memory, *nodes, *cores)
    ]


def _memory(profile: ComputeProfile, seen: Sequence[Used]) -> list[tuple[str, str]]:
    measured = [attempt for attempt in seen if attempt.peak_memory_mib]
    if not measured:
        return []
    largest = max(measured, key=lambda attempt: attempt.peak_memory_mib or 0)
    peak, limit = largest.peak_memory_mib or 0, profile.memory_mib
    share = f"{largest.task} used at most {peak:,.0f} MiB, {peak / limit:.0%} of what is reserved"
    spilled = sum(attempt.spilled_bytes or 0 for attempt in seen)
    if spilled:
        wanted = _rounded(max(limit * _ROOM, peak * _ROOM))
        what = f"Spark spilled {spilled / 2**20:,.0f} MiB to disk; {share}"
        return [(what, f'memory = "{format_memory(wanted)}"')]
    if peak > MUCH_MEMORY * limit:
        return [
            (f"{share}: little room is left", f'memory = "{format_memory(_rounded(peak * _ROOM))}"')
        ]
    if peak < LITTLE_MEMORY * limit:
        wanted = _rounded(peak * _ROOM)
        if wanted < limit:
            return [
                (
                    f"memory never above {LITTLE_MEMORY:.0%}: {share}",
                    f'memory = "{format_memory(wanted)}"',
                )
            ]
    return []


def _cores(profile: ComputeProfile, seen: Sequence[Used]) -> list[tuple[str, str]]:
    busiest = _busiest(seen)
    if profile.cores < _SEVERAL or busiest is None:
        return []
    task, busy = busiest
    wanted = max(1, math.ceil(busy * _ROOM))
    if busy > _IDLE_SHARE * profile.cores or wanted >= profile.cores:
        return []
    found = f"{busy:.1f} of {profile.cores} cores were busy on average in the busiest task, {task}"
    change = f"cores = {wanted}"
    if profile.workers > wanted:
        change += f"\nworkers = {wanted}"
    return [(found, change)]


def _nodes(profile: ComputeProfile, seen: Sequence[Used]) -> list[tuple[str, str]]:
    """Several workers for what fits on one: they exchange data for nothing."""
    peaks = [attempt.peak_memory_mib for attempt in seen if attempt.peak_memory_mib]
    busiest = _busiest(seen)
    if profile.workers < _SEVERAL or not peaks or busiest is None:
        return []
    fits = max(peaks) * _ROOM <= profile.memory_mib_per_worker
    if not fits or busiest[1] > profile.cores_per_worker:
        return []
    found = (
        f"small enough for a single node: at most {max(peaks):,.0f} MiB and {busiest[1]:.1f} busy "
        f"cores, and one worker has {profile.memory_mib_per_worker:,} MiB and "
        f"{profile.cores_per_worker} cores"
    )
    return [(found, "workers = 1")]


def _busiest(seen: Sequence[Used]) -> tuple[str, float] | None:
    rates = [(a.cpu_s / a.wall_s, a.task) for a in seen if a.cpu_s is not None]
    if not rates:
        return None
    rate, task = max(rates)
    return task, rate


def _rounded(mib: float) -> int:
    return max(2 * _STEP_MIB, math.ceil(mib / _STEP_MIB) * _STEP_MIB)
