"""Write Parquet files byte by byte, for layouts that no current writer makes.

One row group, one uncompressed page a column, values in PLAIN. Levels are given by hand.
Source: the Parquet format's `parquet.thrift` and Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTES, FIXED = range(8)
REQUIRED, OPTIONAL, REPEATED = range(3)
UTF8, MAP, MAP_KEY_VALUE, LIST, ENUM, DECIMAL = range(6)
JSON, BSON = 19, 20

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_RLE = 3


@dataclass(frozen=True)
class Node:
    """One element of the schema; a group has children, a leaf a type and values.

    Attributes:
        name: Its name.
        repetition: `REQUIRED`, `OPTIONAL` or `REPEATED`.
        children: Fields of a group.
        type: Physical type of a leaf.
        converted: Converted type, such as `UTF8` or `LIST`.
        length: Bytes of a `FIXED` value.
        scale: Of a decimal.
        precision: Of a decimal.
        rows: (repetition level, definition level, value) of each entry of a leaf.
    """

    name: str
    repetition: int = OPTIONAL
    children: tuple[Node, ...] = ()
    type: int | None = None
    converted: int | None = None
    length: int | None = None
    scale: int | None = None
    precision: int | None = None
    rows: Sequence[tuple[int, int, Any]] = ()


def group(name: str, *children: Node, repetition: int = OPTIONAL, converted: int | None = None):
    return Node(name, repetition, children, converted=converted)


def leaf(name: str, kind: int, rows: Iterable[tuple[int, int, Any]], **about: Any) -> Node:
    return Node(name, type=kind, rows=tuple(rows), **about)


def flat(name: str, kind: int, values: Iterable[Any], **about: Any) -> Node:
    """An optional column without nesting."""
    return leaf(name, kind, [(0, int(value is not None), value) for value in values], **about)


def write(path: Path, rows: int, *columns: Node) -> None:
    """Write a file with these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = bytearray(b"PAR1")
    chunks = [_chunk(body, *found) for column in columns for found in _leaves(column, (), 0, 0)]
    root = _struct((4, "schema"), (5, len(columns)))
    elements = [root, *(element for column in columns for element in _elements(column))]
    row_group = _struct((1, chunks), (2, _I64Value(len(body))), (3, _I64Value(rows)))
    footer = _struct(
        (1, 1), (2, elements), (3, _I64Value(rows)), (4, [row_group]), (6, "headrace tests")
    )
    path.write_bytes(bytes(body) + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _leaves(node: Node, path: tuple[str, ...], repetition: int, definition: int):
    path = (*path, node.name)
    repetition += node.repetition == REPEATED
    definition += node.repetition != REQUIRED
    if node.type is not None:
        yield node, path, repetition, definition
    for child in node.children:
        yield from _leaves(child, path, repetition, definition)


def _chunk(body: bytearray, node: Node, path: tuple[str, ...], top_rep: int, top_def: int) -> bytes:
    levels = b""
    if top_rep:
        levels += _levels([rep for rep, _, _ in node.rows], top_rep)
    if top_def:
        levels += _levels([found for _, found, _ in node.rows], top_def)
    values = [value for _, found, value in node.rows if found == top_def]
    page = levels + b"".join(_plain(node, value) for value in values)
    header = _struct(
        (1, 0),
        (2, len(page)),
        (3, len(page)),
        (5, _Struct(_struct((1, len(node.rows)), (2, 0), (3, _RLE), (4, _RLE)))),
    )
    at = len(body)
    body += header + page
    size = _I64Value(len(header) + len(page))
    about = _struct(
        (1, node.type),
        (2, [0, _RLE]),
        (3, list(path)),
        (4, 0),
        (5, _I64Value(len(node.rows))),
        (6, size),
        (7, size),
        (9, _I64Value(at)),
    )
    return _struct((2, _I64Value(at)), (3, _Struct(about)))


def _plain(node: Node, value: Any) -> bytes:
    if node.type == BYTES:
        data = value.encode() if isinstance(value, str) else value
        return struct.pack("<I", len(data)) + data
    if node.type in (FIXED, INT96):
        return bytes(value)
    return struct.pack({INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}[node.type], value)


def _levels(levels: list[int], top: int) -> bytes:
    """Run lengths of levels; at most 255, so one byte each."""
    assert top < 256
    runs = b"".join(
        _varint(len(list(same)) << 1) + bytes([level]) for level, same in groupby(levels)
    )
    return struct.pack("<I", len(runs)) + runs


def _elements(node: Node) -> Iterable[bytes]:
    yield _struct(
        (1, node.type),
        (2, node.length),
        (3, node.repetition),
        (4, node.name),
        (5, len(node.children) or None),
        (6, node.converted),
        (7, node.scale),
        (8, node.precision),
    )
    for child in node.children:
        yield from _elements(child)


# --- Thrift's compact protocol -------------------------------------------------------------------


class _I64Value(int):
    """A number that is written as i64."""


class _Struct(bytes):
    """A struct that is encoded already."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _kind(value: Any) -> int:
    if isinstance(value, _I64Value):
        return _I64
    if isinstance(value, int):
        return _I32
    if isinstance(value, str):
        return _BINARY
    return _LIST if isinstance(value, list) else _STRUCT


def _value(value: Any) -> bytes:
    if isinstance(value, int):
        return _zigzag(value)
    if isinstance(value, str):
        return _varint(len(value.encode())) + value.encode()
    if isinstance(value, list):
        kind = _kind(value[0])
        head = (
            bytes([len(value) << 4 | kind])
            if len(value) < 15
            else bytes([0xF0 | kind]) + _varint(len(value))
        )
        return head + b"".join(map(_value, value))
    return bytes(value)


def _struct(*fields: tuple[int, Any]) -> bytes:
    """A struct from (field id, value); fields that are None are left out."""
    out, before = b"", 0
    for number, value in fields:
        if value is not None:
            out += bytes([(number - before) << 4 | _kind(value)]) + _value(value)
            before = number
    return out + b"\0"
