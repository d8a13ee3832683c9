"""Leave out row groups of a Parquet file that can't hold a row that the filter keeps."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.delta.predicates import Predicate
from headrace.delta.pruning import Bounds, RowBounds, may_be_true, single
from headrace.delta.schema import Primitive, Struct, text_type_at
from headrace.delta.types import arrow_type


def may_match(
    predicate: Predicate, group: pq.RowGroupMetaData, places: Mapping[str, int], schema: Struct
) -> bool:
    """Whether a row group may hold a row that the bound predicate keeps.

    Args:
        predicate: The filter.
        group: The row group's part of the footer.
        places: Column name to leaf number, for columns whose statistics can be used.
        schema: The table's schema.
    """
    columns = {}
    for name, leaf in places.items():
        found = schema.find(name)
        is_char = found is not None and text_type_at([found]).startswith("char(")
        if found is not None and isinstance(found.type, Primitive) and not is_char:
            bounds = _bounds(group, leaf, arrow_type(found.type))
            if bounds is not None:
                columns[name] = bounds
    return bool(may_be_true(predicate, RowBounds(columns))[0])


def _bounds(group: pq.RowGroupMetaData, leaf: int, kind: pa.DataType) -> Bounds | None:
    statistics = group.column(leaf).statistics
    if statistics is None:
        return None
    nulls = statistics.null_count if statistics.has_null_count else None
    low = high = None
    if statistics.has_min_max and not pa.types.is_nested(kind):
        low, high = statistics.min, statistics.max
    try:
        return single(low, high, nulls, group.num_rows, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return single(None, None, nulls, group.num_rows, kind)
