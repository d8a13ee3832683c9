"""The population stability index: how far one set of values lies from another."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

SHIFTED = 0.1
DRIFTED = 0.25

_BINS = 10
# An empty bin would make the index infinite.
_LEAST_SHARE = 1e-4


def stability_index(before: Sequence[Any], after: Sequence[Any], *, bins: int = _BINS) -> float:
    """Compare two sets of values of one column.

    Numbers fall into bins with equally many of the values before; texts are bins themselves, and so
    are missing values. The index is the sum over all bins of the difference of the shares times
    the logarithm of their ratio.

    Args:
        before: What the model was trained on.
        after: What it sees now.
        bins: Number of bins for numbers.

    Returns:
        0 for the same shares; below 0.1 is taken as steady, 0.25 and more as drifted.

    Example:
        >>> stability_index(["EWR", "JFK"], ["EWR", "JFK", "JFK", "EWR"])
        0.0
        >>> round(stability_index(list(range(100)), list(range(50, 150))), 1) > 1
        True
    """
    edges = _edges(before, bins)
    first, second = _shares(before, edges), _shares(after, edges)
    total = 0.0
    for name in first.keys() | second.keys():
        one = max(first.get(name, 0.0), _LEAST_SHARE)
        two = max(second.get(name, 0.0), _LEAST_SHARE)
        total += (two - one) * math.log(two / one)
    return total


def _edges(values: Sequence[Any], bins: int) -> list[float] | None:
    """Quantiles of the numbers among the values; None when there are none."""
    numbers = sorted(value for value in values if _is_number(value))
    if not numbers:
        return None
    return sorted({numbers[len(numbers) * place // bins] for place in range(1, bins)})


def _shares(values: Sequence[Any], edges: list[float] | None) -> dict[Any, float]:
    counts = Counter(_bin(value, edges) for value in values)
    return {name: count / max(1, len(values)) for name, count in counts.items()}


def _bin(value: Any, edges: list[float] | None) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return bisect_right(edges, value) if edges is not None and _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not (isinstance(value, float) and math.isnan(value))
