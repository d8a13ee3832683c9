"""Open Parquet files the way Spark sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.delta.access import is_from_store
from headrace.exceptions import UnreadableFileError

_ARROW_SCHEMA = b"ARROW:schema"
_MAGIC = b"PAR1"
_TAIL = 8
# Bytes a value, dictionary included, up to which a column chunk counts as coded.
_CODE_BYTES = 4


def open_parquet(source: Any, *, pre_buffer: bool) -> pq.ParquetFile:
    """Open a file with the types that Parquet itself gives its columns.

    Files by Arrow writers carry a second schema (dictionaries, fixed-size lists, views, any time
    zone) that pyarrow would follow; Spark does not know it, and pyarrow can't read all that it
    writes that way (a null in a fixed-size list). So it is left out.

    Args:
        source: An open file.
        pre_buffer: Whether to fetch column chunks ahead, which pays off on an object store.
    """
    file = _open(source, pre_buffer=pre_buffer)
    metadata = file.metadata
    if _ARROW_SCHEMA in (metadata.metadata or {}):
        metadata = _without_arrow_schema(source)
    coded = coded_columns(metadata)
    if metadata is file.metadata and not coded:
        return file
    return _open(source, pre_buffer=pre_buffer, metadata=metadata, read_dictionary=coded)


def is_damage(error: Exception) -> bool:
    """Whether an error is about the content of a file, not about getting at it."""
    # Parquet's own errors are OSErrors without a number, or ones of Arrow.
    return not isinstance(error, OSError) or (error.errno is None and not is_from_store(error))


@contextmanager
def naming_damage(table: str, version: int, file: str) -> Iterator[None]:
    """Raise what pyarrow says of a file's content as `UnreadableFileError`, which names the file.

    Args:
        table: The table's root.
        version: The pinned version.
        file: The file's address.
    """
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if not is_damage(error):
            raise
        said = str(error).strip().splitlines()[0]
        raise UnreadableFileError(table=table, version=version, file=file, found=said) from error


def coded_columns(metadata: pq.FileMetaData) -> list[str]:
    """Text columns that the file holds as dictionary codes, nearly all of their values.

    Decoding them as codes and looking the texts up afterwards takes half the time. With many
    values outside of the dictionary it would take longer.
    """
    names = []
    for leaf in range(metadata.num_columns if metadata.num_row_groups else 0):
        column = metadata.schema.column(leaf)
        is_flat = column.max_repetition_level == 0 and column.path == column.name
        if not is_flat or str(column.logical_type) != "String":
            continue
        chunks = [
            metadata.row_group(group).column(leaf) for group in range(metadata.num_row_groups)
        ]
        if all(_is_coded(chunk) for chunk in chunks):
            names.append(column.name)
    return names


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    size = chunk.total_uncompressed_size
    return bool(chunk.has_dictionary_page and size <= _CODE_BYTES * max(chunk.num_values, 1))


def _open(source: Any, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        source, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False, **options
    )


def _without_arrow_schema(source: Any) -> pq.FileMetaData:
    """The footer with the key of the Arrow schema renamed, so that nobody finds it."""
    size = source.size()
    length = int.from_bytes(source.read_at(4, size - _TAIL), "little")
    footer = source.read_at(length, size - _TAIL - length)
    footer = footer.replace(_ARROW_SCHEMA, _ARROW_SCHEMA[:-1] + b"_")
    body = _MAGIC + footer + length.to_bytes(4, "little") + _MAGIC
    return pq.read_metadata(pa.BufferReader(body))


def count_leaves(kind: pa.DataType) -> int:
    """Parquet columns that an Arrow type is stored in."""
    if pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        return sum(count_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def middle_of(group: pq.RowGroupMetaData) -> int:
    """The byte in the middle of a row group; the range that holds it reads the group."""
    if group.num_columns == 0:
        return 0
    first = group.column(0)
    start = first.data_page_offset
    if first.dictionary_page_offset:
        start = min(start, first.dictionary_page_offset)
    size = sum(group.column(index).total_compressed_size for index in range(group.num_columns))
    return int(start + size // 2)
