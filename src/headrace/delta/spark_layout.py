"""Layouts and splits of Spark DataFrames that do not depend on the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.exceptions import WriteRequestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUCKETS = 1_000_000


def repartition_sorted(
    df: DataFrame, by: Sequence[str], *, partitions: int, sort: Sequence[str] = ()
) -> DataFrame:
    """Spread rows over a fixed number of partitions by key, sorted inside each.

    For code that depends on the order of rows: per-group training, lag features, a file layout that
    is the same on every run. Rows of equal `by` share a partition whatever the cluster's size. The
    order is total only when `by` and `sort` together tell any two rows apart; adaptive
    execution does not merge the partitions, because their number is given.

    Args:
        df: The rows.
        by: Key columns.
        partitions: Number of partitions, and of files when it is written as it is.
        sort: Columns to sort by after the key, inside a partition.
    """
    order = [*by, *(column for column in sort if column not in by)]
    return df.repartition(partitions, *by).sortWithinPartitions(*order)


def hash_split(
    df: DataFrame,
    *,
    key: Sequence[str],
    seed: int,
    fractions: Mapping[str, float],
    column: str = "split",
) -> DataFrame:
    """Add a column that says which part of a split a row belongs to.

    The part follows from the row's key and the seed alone, not from the order of rows, the number
    of partitions or the cluster, as it does with `randomSplit`. Rows of one key stay together. A
    row keeps its part when other rows come or go.

    Args:
        df: The rows.
        key: Columns that identify what must not be torn apart.
        seed: Another seed gives an independent split.
        fractions: Name of each part and its share, for example
            `{"train": 0.8, "validation": 0.1, "test": 0.1}`; they add up to 1.
        column: Name of the new column.

    Raises:
        WriteRequestError: The shares do not add up to 1.
    """
    from pyspark.sql import functions as fn

    bounds = split_bounds(fractions)
    # The text of a key is the same on every version; a binary hash of a float or a date may not be.
    hashed = fn.pmod(
        fn.xxhash64(fn.lit(seed).cast("long"), *(fn.col(quote(c)).cast("string") for c in key)),
        fn.lit(_BUCKETS),
    )
    *inner, (last, _) = bounds
    part = fn.lit(last)
    for name, bound in reversed(inner):
        part = fn.when(hashed < fn.lit(bound), fn.lit(name)).otherwise(part)
    return df.withColumn(column, part)


def split_bounds(fractions: Mapping[str, float]) -> list[tuple[str, int]]:
    """Upper bucket of each part, of a million buckets.

    Example:
        >>> split_bounds({"train": 0.8, "test": 0.2})
        [('train', 800000), ('test', 1000000)]
    """
    total = sum(fractions.values())
    if not fractions or min(fractions.values()) < 0 or abs(total - 1) > 1 / _BUCKETS:
        raise WriteRequestError(
            table="a split",
            problem=f"its fractions add up to {total:g}, not to 1",
            found=f"Given: {dict(fractions)}.",
            fix='fractions={"train": 0.8, "validation": 0.1, "test": 0.1}',
        )
    reached, bounds = 0.0, []
    for name, share in fractions.items():
        reached += share
        bounds.append((name, round(reached * _BUCKETS)))
    return bounds


def quote(name: str) -> str:
    """A name in backticks, for SQL."""
    return "`" + name.replace("`", "``") + "`"
