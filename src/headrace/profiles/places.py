"""Which kind of cluster an address belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The start of an address, by engine and by what `where` calls its kind.
STARTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "spark": {
        "standalone": ("spark://",),
        "connect": ("sc://",),
        "kubernetes": ("k8s://",),
        "yarn": ("yarn",),
        "processes": ("local-cluster[",),
    },
    "ray": {"job": ("http://", "https://")},
}


def place_of(engine: str, address: str) -> str | None:
    """What `where` is for an address; None when the engine knows no such address.

    Example:
        >>> place_of("spark", "sc://localhost:15002"), place_of("ray", "10.0.0.1:6379")
        ('connect', 'cluster')
    """
    for place, starts in STARTS.get(engine, {}).items():
        if address.startswith(starts):
            return place
    host, _, port = address.rpartition(":")
    is_node = engine == "ray" and (address == "auto" or (bool(host) and port.isdecimal()))
    return "cluster" if is_node and "://" not in address else None


def known_starts(engine: str) -> str:
    """How addresses of an engine's clusters start, for an error's text."""
    starts = [start for starts in STARTS.get(engine, {}).values() for start in starts]
    return ", ".join(starts + (["HOST:PORT"] if engine == "ray" else []))
