"""Write the binaries of a variant, byte for byte as Spark's own builder does.

Source: "Variant Binary Encoding" of the Parquet format.
"""

from __future__ import annotations

import itertools
import struct
from decimal import Decimal

_OBJECT, _ARRAY, _SHORT_TEXT = 2, 3, 1
_TRUE, _FALSE, _DOUBLE, _DATE, _TIMESTAMP, _NTZ, _FLOAT, _BINARY, _TEXT, _UUID = (
    1, 2, 7, 11, 12, 13, 14, 15, 16, 20,
)  # fmt: skip
_INTEGERS = ((3, 1), (4, 2), (5, 4), (6, 8))
_DECIMALS = ((8, 9, 4), (9, 18, 8), (10, 38, 16))
_SHORT_TEXT_LIMIT = 63
_LARGE_FROM = 256
_VERSION = 1

# Bytes of primitives by type id, without the header; texts and binaries say their own length.
_SIZES = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4, 12: 8, 13: 8,
          14: 4, 17: 8, 18: 8, 19: 8, 20: 16}  # fmt: skip

# A field of an object: its key, the key's id, where its value starts.
Entry = tuple[str, int, int]


class VariantBuilder:
    """Grows a variant's value and its dictionary of keys."""

    def __init__(self) -> None:
        self._value = bytearray()
        self._keys: dict[str, int] = {}

    @property
    def position(self) -> int:
        """Where the next value starts."""
        return len(self._value)

    def add_key(self, key: str) -> int:
        """The id of a key, new or known."""
        return self._keys.setdefault(key, len(self._keys))

    def result(self) -> tuple[bytes, bytes]:
        """Value and metadata."""
        keys = [key.encode() for key in self._keys]
        width = integer_size(max(sum(map(len, keys)), len(keys)))
        parts = [bytes([_VERSION | (width - 1) << 6]), len(keys).to_bytes(width, "little")]
        at = 0
        for key in keys:
            parts.append(at.to_bytes(width, "little"))
            at += len(key)
        parts.append(at.to_bytes(width, "little"))
        return bytes(self._value), b"".join([*parts, *keys])

    def append_raw(self, data: bytes) -> None:
        """Add an encoded value that holds no keys."""
        self._value += data

    def append_integer(self, value: int) -> None:
        """Add a whole number in the fewest bytes."""
        for kind, width in _INTEGERS:
            if -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1):
                self._primitive(kind, value.to_bytes(width, "little", signed=True))
                return

    def append_text(self, value: str) -> None:
        """Add a text."""
        data = value.encode()
        if len(data) <= _SHORT_TEXT_LIMIT:
            self._value += bytes([len(data) << 2 | _SHORT_TEXT]) + data
        else:
            self._primitive(_TEXT, struct.pack("<I", len(data)) + data)

    def append_decimal(self, value: Decimal) -> None:
        """Add a decimal with the scale that it has."""
        sign, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        unscaled = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
        precision = len(str(abs(unscaled)))
        for kind, limit, width in _DECIMALS:
            if scale <= limit and precision <= limit:
                number = unscaled.to_bytes(width, "little", signed=True)
                self._primitive(kind, bytes([scale]) + number)
                return

    def append_boolean(self, *, value: bool) -> None:
        """Add a boolean."""
        self._primitive(_TRUE if value else _FALSE, b"")

    def append_float(self, value: float, *, double: bool) -> None:
        """Add a floating-point number."""
        self._primitive(_DOUBLE if double else _FLOAT, struct.pack("<d" if double else "<f", value))

    def append_binary(self, value: bytes) -> None:
        """Add bytes."""
        self._primitive(_BINARY, struct.pack("<I", len(value)) + value)

    def append_uuid(self, value: bytes) -> None:
        """Add a UUID, big endian."""
        self._primitive(_UUID, value)

    def append_date(self, days: int) -> None:
        """Add a date."""
        self._primitive(_DATE, struct.pack("<i", days))

    def append_timestamp(self, micros: int, *, zoned: bool) -> None:
        """Add a time."""
        self._primitive(_TIMESTAMP if zoned else _NTZ, struct.pack("<q", micros))

    def finish_array(self, start: int, offsets: list[int]) -> None:
        """Make what was added since `start` an array."""
        size, width, large = self._frame(start, len(offsets))
        head = bytes([(large << 2 | width - 1) << 2 | _ARRAY])
        self._insert(start, head + size + _join([*offsets, self.position - start], width))

    def finish_object(self, start: int, entries: list[Entry]) -> None:
        """Make what was added since `start` an object; keys are sorted, values stay in place."""
        entries = sorted(entries, key=lambda entry: entry[0].encode("utf-16-be"))
        size, width, large = self._frame(start, len(entries))
        id_width = integer_size(max((entry[1] for entry in entries), default=0))
        head = bytes([(large << 4 | (id_width - 1) << 2 | width - 1) << 2 | _OBJECT])
        ids = _join([entry[1] for entry in entries], id_width)
        offsets = _join([*(entry[2] for entry in entries), self.position - start], width)
        self._insert(start, head + size + ids + offsets)

    def append_variant(self, value: bytes, keys: list[str], at: int = 0) -> None:
        """Add an encoded value whose keys are numbered by another dictionary."""
        start = self.position
        if value[at] & 3 == _OBJECT:
            entries: list[Entry] = []
            for number, position in object_fields(value, at):
                key = keys[number]
                entries.append((key, self.add_key(key), self.position - start))
                self.append_variant(value, keys, position)
            self.finish_object(start, entries)
        elif value[at] & 3 == _ARRAY:
            offsets = []
            for position in array_elements(value, at):
                offsets.append(self.position - start)
                self.append_variant(value, keys, position)
            self.finish_array(start, offsets)
        else:
            self.append_raw(value[at : at + scalar_size(value, at)])

    def _primitive(self, kind: int, data: bytes) -> None:
        self._value += bytes([kind << 2]) + data

    def _frame(self, start: int, count: int) -> tuple[bytes, int, int]:
        large = int(count >= _LARGE_FROM)
        return (
            count.to_bytes(4 if large else 1, "little"),
            integer_size(self.position - start),
            large,
        )

    def _insert(self, start: int, head: bytes) -> None:
        self._value[start:start] = head


def integer_size(value: int) -> int:
    """Bytes that an unsigned number takes, 1 to 4."""
    return max(1, (value.bit_length() + 7) // 8)


def metadata_keys(metadata: bytes) -> list[str]:
    """The keys of a variant's metadata."""
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    offsets = _numbers(metadata, 1 + width, count + 1, width)
    first = 1 + width * (count + 2)
    return [
        metadata[first + low : first + high].decode() for low, high in itertools.pairwise(offsets)
    ]


def object_fields(value: bytes, at: int = 0) -> list[tuple[int, int]]:
    """Key id and position of each field of an object."""
    head = value[at] >> 2
    width, id_width, size_width = (head & 3) + 1, (head >> 2 & 3) + 1, 4 if head & 16 else 1
    count = int.from_bytes(value[at + 1 : at + 1 + size_width], "little")
    ids_at = at + 1 + size_width
    offsets_at = ids_at + count * id_width
    data_at = offsets_at + (count + 1) * width
    offsets = _numbers(value, offsets_at, count, width)
    ids = _numbers(value, ids_at, count, id_width)
    return [(number, data_at + offset) for number, offset in zip(ids, offsets, strict=True)]


def array_elements(value: bytes, at: int = 0) -> list[int]:
    """Positions of an array's elements."""
    head = value[at] >> 2
    width, size_width = (head & 3) + 1, 4 if head & 4 else 1
    count = int.from_bytes(value[at + 1 : at + 1 + size_width], "little")
    offsets_at = at + 1 + size_width
    data_at = offsets_at + (count + 1) * width
    return [data_at + offset for offset in _numbers(value, offsets_at, count, width)]


def is_object(value: bytes) -> bool:
    """Whether an encoded value is an object."""
    return value[0] & 3 == _OBJECT


def scalar_size(value: bytes, at: int) -> int:
    """Bytes of an encoded scalar, with its header."""
    kind = value[at] >> 2
    if value[at] & 3 == _SHORT_TEXT:
        return 1 + kind
    if kind in (_BINARY, _TEXT):
        return 5 + int.from_bytes(value[at + 1 : at + 5], "little")
    return 1 + _SIZES[kind]


def _numbers(data: bytes, at: int, count: int, width: int) -> list[int]:
    return [
        int.from_bytes(data[at + index * width : at + (index + 1) * width], "little")
        for index in range(count)
    ]


def _join(numbers: list[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)
