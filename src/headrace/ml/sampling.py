"""A sample of rows that come in batches, with a seed and without holding more than it keeps."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def sample_batches(
    batches: Iterable[pd.DataFrame], total: int, wanted: int, seed: tuple[int, Any]
) -> pd.DataFrame:
    """Exactly `wanted` rows, each equally likely, in the order in which they come.

    Args:
        batches: Frames with `total` rows together.
        total: Rows that will come.
        wanted: Rows to keep.
        seed: A number and a key: each group has its own sample, the same at every run.
    """
    import pandas as pd

    number, key = seed
    generator = np.random.default_rng([number, zlib.crc32(repr(key).encode())])
    chosen = np.sort(generator.choice(total, size=min(wanted, total), replace=False))
    kept, at = [], 0
    for batch in batches:
        first, last = np.searchsorted(chosen, [at, at + len(batch)])
        kept.append(batch.iloc[chosen[first:last] - at])
        at += len(batch)
    return pd.concat(kept, ignore_index=True)
