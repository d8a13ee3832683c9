"""Variants: the two binaries of Spark's VARIANT type, put together where a file shreds them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.types import VARIANT


def conform_variant(array: pa.StructArray) -> pa.Array:
    """A file's variant column as a struct of `value` and `metadata`."""
    names = [child.name for child in array.type]
    if "typed_value" in names:
        raise NotImplementedError
    children = [array.field(names.index(name)) for name in ("value", "metadata")]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(VARIANT), mask=mask)
