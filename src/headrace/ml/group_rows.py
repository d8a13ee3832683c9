"""Rows of an Arrow table by group: codes, sizes, fingerprints, and pandas as Spark gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# What a Python object takes beside its pointer, by kind, in bytes.
TEXT_BYTES: Final = 57
OBJECT_BYTES: Final = 112
NUMBER_BYTES: Final = 8

# How fingerprints are made of rows in Arrow.
ARROW_SCHEME: Final = "arrow-splitmix64"

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)


def group_codes(table: pa.Table, by: Sequence[str]) -> tuple[NDArray[np.int64], list[Any]]:
    """Each row's group as a number from 0, and the groups' keys.

    A null is a value like any other, as in Spark's `groupBy`.

    Returns:
        Codes, one per row; keys as tuples, by code.
    """
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for name in by:
        column = _joined(table[name]).dictionary_encode(null_encoding="encode")
        mixed = codes * max(1, len(column.dictionary)) + column.indices.to_numpy()
        # Numbered anew after each column, so that many columns don't overflow.
        codes = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
    _, first = np.unique(codes, return_index=True)
    keys = table.select(list(by)).take(pa.array(first)).to_pylist()
    return codes, [tuple(row[name] for name in by) for row in keys]


def measure(table: pa.Table, by: Sequence[str]) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """Rows, bytes as pandas, and sum of the rows' hashes (modulo 2**64) of each group."""
    codes, keys = group_codes(table, by)
    rows = np.bincount(codes, minlength=len(keys))
    sizes = np.bincount(codes, weights=row_bytes(table), minlength=len(keys))
    hashes = np.zeros(len(keys), dtype=np.uint64)
    np.add.at(hashes, codes, row_hashes(table))
    found = zip(rows.tolist(), sizes.astype(np.int64).tolist(), hashes.tolist(), strict=True)
    return dict(zip(keys, found, strict=True))


def row_bytes(table: pa.Table) -> NDArray[np.float64]:
    """Bytes of each row as pandas holds it."""
    sizes = np.zeros(table.num_rows)
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += TEXT_BYTES + lengths.to_numpy()
        elif _is_flat(column.type):
            sizes += NUMBER_BYTES
        else:
            sizes += OBJECT_BYTES
    return sizes


def row_hashes(table: pa.Table) -> NDArray[np.uint64]:
    """A number for each row that follows from its values alone, whatever rows are around it."""
    hashes = np.zeros(table.num_rows, dtype=np.uint64)
    for column in table.columns:
        found = _mix(_column_hashes(_joined(column)))
        hashes = _mix(hashes * np.uint64(31) + found)
    return hashes


def _column_hashes(column: pa.Array) -> NDArray[np.uint64]:
    from pandas.util import hash_array

    kind = column.type
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        hashes = (numbers + 0.0).view(np.uint64)  # -0.0 is 0.0
    elif _is_flat(kind):
        whole = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        numbers = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        hashes = numbers.view(np.uint64)
    else:
        texts = np.array([repr(value) for value in column.to_pylist()], dtype=object)
        if pa.types.is_string(kind):
            encoded = pc.fill_null(column, "").dictionary_encode()
            words = np.array(encoded.dictionary.to_pylist(), dtype=object)
            hashes = hash_array(words, categorize=False)[encoded.indices.to_numpy()]
        else:
            hashes = hash_array(texts, categorize=False)
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        hashes = np.where(missing, _NULL, hashes)
    return np.asarray(hashes, dtype=np.uint64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the input moves every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Rows as `applyInPandas` gives them: times without a zone, in UTC and nanoseconds."""
    columns = []
    for column in table.columns:
        plain = pa.types.is_timestamp(column.type)
        # A zone is only a label on what is counted from 1970 in UTC.
        columns.append(column.cast(pa.timestamp(column.type.unit)) if plain else column)
    frame: pd.DataFrame = pa.table(columns, names=table.column_names).to_pandas(
        coerce_temporal_nanoseconds=True, maps_as_pydicts="strict"
    )
    return frame


def _is_flat(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
    )


def _joined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
