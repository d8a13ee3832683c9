"""Deletion vectors: which rows of a file are gone.

Formats: "Deletion Vector Format" of the Delta protocol, and the portable serialisation of the
Roaring bitmap specification.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.delta.location import filesystem_path, resolve_file

if TYPE_CHECKING:
    from pyarrow import fs

Positions = npt.NDArray[np.int64]

_PORTABLE, _NATIVE = 1681511377, 1681511376
_COOKIE, _COOKIE_NO_RUNS = 12347, 12346
_ARRAY_LIMIT = 4096
_BITMAP_BYTES = 8192
_OFFSETS_FROM = 4
_UUID_LENGTH = 20

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)


@dataclass(frozen=True)
class Chosen:
    """Which rows of a file count, by their numbers.

    Attributes:
        without: Rows that don't, sorted; None for no such row.
        only: Rows of which alone some may, sorted; None for all.
    """

    without: Positions | None = None
    only: Positions | None = None

    def mask(self, first: int, count: int) -> pa.BooleanArray | None:
        """Which of `count` rows from the row number `first` on count; None for all of them."""
        if self.without is None and self.only is None:
            return None
        keep = np.ones(count, np.bool_)
        if self.only is not None:
            keep = _marks(self.only, first, count)
        if self.without is not None:
            keep &= ~_marks(self.without, first, count)
        return None if keep.all() else pa.array(keep)


def _marks(rows: Positions, first: int, count: int) -> npt.NDArray[np.bool_]:
    low, high = np.searchsorted(rows, [first, first + count])
    marks = np.zeros(count, np.bool_)
    marks[rows[low:high] - first] = True
    return marks


def load_deleted_rows(
    filesystem: fs.FileSystem, table_uri: str, descriptor: Mapping[str, Any]
) -> Positions:
    """Row numbers in the data file that a deletion vector removes, sorted.

    Args:
        filesystem: Where the table lives.
        table_uri: The table's root.
        descriptor: The `deletionVector` of an `add` action.

    Raises:
        ValueError: The vector is damaged, or does not hold as many rows as the log says.
    """
    if descriptor["storageType"] == "i":
        data = decode_z85(descriptor["pathOrInlineDv"])[: int(descriptor["sizeInBytes"])]
    else:
        path = filesystem_path(vector_address(table_uri, descriptor))
        offset, size = int(descriptor.get("offset") or 0), int(descriptor["sizeInBytes"])
        with filesystem.open_input_file(path) as file:
            data = read_vector(file.read_at(size + 8, offset), size)
    rows = decode_vector(data)
    expected = descriptor.get("cardinality")
    if expected is not None and int(expected) != len(rows):
        raise ValueError(f"it removes {len(rows)} rows and the log says {expected}")
    return rows


def vector_address(table_uri: str, descriptor: Mapping[str, Any]) -> str:
    """The address of the file that holds a vector which is not inline."""
    text = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == "p":
        return resolve_file(table_uri, text)
    prefix, code = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    name = f"deletion_vector_{uuid.UUID(bytes=decode_z85(code))}.bin"
    return "/".join(part for part in (table_uri.rstrip("/"), prefix, name) if part)


def read_vector(data: bytes, size: int) -> bytes:
    """Take a vector out of its file: size (big endian), the data, CRC-32 of it."""
    (stored,) = struct.unpack_from(">i", data)
    if stored != size or len(data) < size + 8:
        raise ValueError(f"its file holds {stored} bytes there and the log says {size}")
    body = bytes(data[4 : 4 + size])
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum does not fit")
    return body


def decode_z85(text: str) -> bytes:
    """Decode the ZeroMQ flavour of base 85, which Delta uses."""
    return base64.b85decode(text.translate(_TO_B85))


def decode_vector(data: bytes) -> Positions:
    """Decode a 64-bit Roaring bitmap as Delta lays it out, to sorted row numbers."""
    (magic,) = struct.unpack_from("<I", data)
    parts: list[Positions] = []
    if magic == _PORTABLE:
        (count,) = struct.unpack_from("<q", data, 4)
        at = 12
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            rows, at = _decode_bitmap(data, at + 4)
            parts.append(rows + (np.int64(key) << np.int64(32)))
    elif magic == _NATIVE:
        (count,) = struct.unpack_from("<i", data, 4)
        at = 8
        for key in range(count):
            (size,) = struct.unpack_from("<i", data, at)
            rows, _ = _decode_bitmap(data, at + 4)
            parts.append(rows + (np.int64(key) << np.int64(32)))
            at += 4 + size
    else:
        raise ValueError(f"its format {magic} is not known")
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _decode_bitmap(data: bytes, at: int) -> tuple[Positions, int]:
    """Decode one 32-bit Roaring bitmap; also where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    runs = np.empty(0, np.uint8)
    if cookie & 0xFFFF == _COOKIE:
        count = (cookie >> 16) + 1
        at += 4
        flags = (count + 7) // 8
        runs = np.unpackbits(np.frombuffer(data, np.uint8, flags, at), bitorder="little")
        at += flags
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _COOKIE_NO_RUNS:
        (count,) = struct.unpack_from("<I", data, at + 4)
        at += 8
        has_offsets = True
    else:
        raise ValueError(f"its bitmap format {cookie} is not known")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).astype(np.int64)
    at += 4 * count + (4 * count if has_offsets else 0)
    parts = []
    for index in range(count):
        is_run = index < len(runs) and bool(runs[index])
        low, at = _decode_container(data, at, int(heads[index, 1]) + 1, is_run=is_run)
        parts.append(low + (heads[index, 0] << np.int64(16)))
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), at


def _decode_container(data: bytes, at: int, size: int, *, is_run: bool) -> tuple[Positions, int]:
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(count, 2).astype(np.int64)
        lengths = pairs[:, 1] + 1
        starts = np.repeat(pairs[:, 0] - np.cumsum(lengths) + lengths, lengths)
        return starts + np.arange(lengths.sum(), dtype=np.int64), at + 2 + 4 * count
    if size <= _ARRAY_LIMIT:
        return np.frombuffer(data, "<u2", size, at).astype(np.int64), at + 2 * size
    bits = np.frombuffer(data, np.uint8, _BITMAP_BYTES, at)
    found = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
    return found, at + _BITMAP_BYTES
