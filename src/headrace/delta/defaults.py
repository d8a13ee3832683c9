"""Values of columns in files that are older than the column."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from headrace.delta.partitions import partition_scalar
from headrace.delta.schema import Field, Primitive
from headrace.delta.sql import SqlError, parse
from headrace.delta.sql_values import evaluate
from headrace.delta.types import arrow_type

EXISTS_DEFAULT = "EXISTS_DEFAULT"
_TEXT = re.compile(
    r"^(?:(?:DATE|TIMESTAMP|TIMESTAMP_LTZ|TIMESTAMP_NTZ)\s*|CAST\s*\(\s*)?"
    r"'([^'\\]*)'(?:\s+AS\s+[^']*\))?$",
    re.IGNORECASE,
)
_BYTES = re.compile(r"^X'((?:[0-9A-F]{2})*)'$", re.IGNORECASE)


def value_if_missing(field: Field) -> pa.Scalar:
    """What a column holds in a file that does not have it: null, or the default it came with.

    Spark notes the default that a column was added with, as SQL, in the field's metadata.

    Raises:
        ValueError: The default can't be computed here.
    """
    text = field.metadata.get(EXISTS_DEFAULT)
    kind = arrow_type(field.type)
    if text is None:
        return pa.scalar(None, kind)
    name = field.type.name if isinstance(field.type, Primitive) else ""
    return _constant(str(text).strip(), name, kind)


@lru_cache(maxsize=1024)
def _constant(text: str, name: str, kind: pa.DataType) -> pa.Scalar:
    if (quoted := _TEXT.match(text)) and name:
        return partition_scalar(quoted[1], name, kind)
    if coded := _BYTES.match(text):
        return pa.scalar(bytes.fromhex(coded[1]), kind)
    try:
        return evaluate(parse(text), pa.table({"_": pa.nulls(1)})).cast(kind)[0]
    except (SqlError, pa.ArrowException) as error:
        raise ValueError(f"the default {text}: {error}") from error
