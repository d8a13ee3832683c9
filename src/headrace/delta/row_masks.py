"""Which rows a filter holds for, as a plain mask."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.evaluate import evaluate
from headrace.delta.predicates import Predicate


def holds_for(rows: pa.Table, predicate: Predicate) -> pa.BooleanArray:
    """For each row whether the predicate is true; unknown counts as false."""
    mask = evaluate(rows, predicate)
    if isinstance(mask, pa.Scalar):
        return pa.array([bool(mask.as_py())] * rows.num_rows, pa.bool_())
    mask = pc.fill_null(mask, fill_value=False)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
