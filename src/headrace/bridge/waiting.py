"""Wait for a free CPU of the Ray cluster, for a bounded time, and say who holds them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.exceptions import CpusBusyError

# A key of `DataContext.set_config`, in seconds.
WAIT_SETTING = "headrace_cpu_wait_s"
DEFAULT_WAIT_S = 120
# Ray Data's own actors, which hold no CPU.
_OF_RAY = frozenset({"AutoscalingCoordinator", "datasets_stats_actor"})


def wait_for_cpu(data_context: Any) -> None:
    """Return once a CPU is free.

    A read whose cluster is held by someone else (actors of a training run, say) would wait for
    ever without a word.

    Args:
        data_context: Ray Data's context; `set_config("headrace_cpu_wait_s", 30)` on it changes
            the bound.

    Raises:
        CpusBusyError: No CPU became free within the bound; the text names who holds them.
    """
    import ray

    if ray.available_resources().get("CPU", 0) >= 1:
        return
    # The cluster's own account lags behind by seconds; a task that asks for a CPU does not.
    limit = int(data_context.get_config(WAIT_SETTING, DEFAULT_WAIT_S))
    probe = ray.remote(num_cpus=1, max_retries=0)(_nothing).remote()
    done, _ = ray.wait([probe], timeout=limit)
    if not done:
        ray.cancel(probe, force=True)
        raise CpusBusyError(
            waited_s=limit,
            wanted=1.0,
            total=float(ray.cluster_resources().get("CPU", 0)),
            holders=tuple(cpu_holders()),
        )


def _nothing() -> None:
    """What the probe runs."""


def cpu_holders() -> list[str]:
    """Who holds CPUs, in words: live actors by class, and placement groups."""
    holders = [*_actors(), *_placement_groups()]
    return holders or ["running tasks"]


def _actors() -> list[str]:
    from ray._private.state import actors

    try:
        alive = [item for item in actors().values() if item.get("State") == "ALIVE"]
    except Exception:  # noqa: BLE001 - a private call, and only an error text depends on it
        return []
    labels = [item.get("Name") or item.get("ActorClassName") or "actor" for item in alive]
    names = Counter(label.rpartition(".")[2] for label in labels if label not in _OF_RAY)
    return [
        f"{count} x actor {name}" if count > 1 else f"actor {name}" for name, count in names.items()
    ]


def _placement_groups() -> list[str]:
    from ray.util import placement_group_table

    try:
        groups = placement_group_table().values()
    except Exception:  # noqa: BLE001
        return []
    return [
        f"placement group {group.get('name') or group.get('placement_group_id', '')[:8]} "
        f"with {sum(bundle.get('CPU', 0) for bundle in group.get('bundles', {}).values()):g} CPUs"
        for group in groups
        if group.get("state") == "CREATED"
    ]
