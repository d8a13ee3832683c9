"""Deletion vectors: every row is deleted once, and no other."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta.deletion_vectors import (
    Chosen,
    decode_vector,
    decode_z85,
    read_vector,
    vector_address,
)
from tests.delta.handmade_tables import portable, z85

ROW = st.one_of(
    st.integers(0, 200),
    st.integers(0, 1 << 17),
    st.integers(0, 1 << 34),
    st.integers(65_530, 65_545),
)


def encode_container(values, kind):
    if kind == "run":
        starts = [value for value in values if value - 1 not in values]
        pairs = []
        for start in sorted(starts):
            end = start
            while end + 1 in values:
                end += 1
            pairs.append((start, end - start))
        return struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs)
    if len(values) <= 4096:
        return b"".join(struct.pack("<H", value) for value in sorted(values))
    bits = np.zeros(65_536, np.uint8)
    bits[list(values)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def encode(rows, run_of):
    """The portable format, written from its specification, with any container as runs."""
    high = {}
    for row in rows:
        high.setdefault(row >> 32, {}).setdefault((row >> 16) & 0xFFFF, set()).add(row & 0xFFFF)
    data = struct.pack("<IQ", 1681511377, len(high))
    for key in sorted(high):
        groups = sorted(high[key].items())
        runs = [run_of(number) for number in range(len(groups))]
        data += struct.pack("<I", key)
        if any(runs):
            data += struct.pack("<I", 12347 | (len(groups) - 1) << 16)
            data += np.packbits(np.array(runs, np.uint8), bitorder="little").tobytes()
        else:
            data += struct.pack("<II", 12346, len(groups))
        data += b"".join(struct.pack("<HH", low, len(values) - 1) for low, values in groups)
        if not any(runs) or len(groups) >= 4:
            data += b"\0" * 4 * len(groups)
        for run, (_, values) in zip(runs, groups, strict=True):
            data += encode_container(values, "run" if run else "")
    return data


@settings(deadline=None)
@given(st.sets(ROW, max_size=300), st.integers(0, 255))
def test_every_row_of_a_vector_is_decoded_once_and_in_order(rows, pattern):
    data = encode(rows, lambda number: bool(pattern >> (number % 8) & 1))
    assert decode_vector(data).tolist() == sorted(rows)


def test_a_dense_container_is_a_bitmap_or_runs():
    rows = set(range(0, 60_000, 2)) | set(range(100_000, 190_000))
    for runs in (False, True):
        assert decode_vector(encode(rows, lambda _, runs=runs: runs)).tolist() == sorted(rows)


def test_the_native_format_is_decoded_too():
    assert decode_vector(portable([1, 5], native=True)).tolist() == [1, 5]


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="not known"):
        decode_vector(b"\x00" * 16)


@given(st.binary(max_size=64))
def test_base_85_comes_back_as_it_was(data):
    padded = data + b"\0" * (-len(data) % 4)
    assert decode_z85(z85(data)) == padded


def test_a_relative_vector_lies_in_the_table_below_its_prefix():
    code = "^-aqEH.-t@S}K{vb[*k^"
    found = vector_address("/lake/t", {"storageType": "u", "pathOrInlineDv": f"ab{code}"})
    assert found == "/lake/t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_a_damaged_file_is_noticed():
    body = portable([1])
    stored = struct.pack(">i", len(body)) + body + struct.pack(">I", 7)
    with pytest.raises(ValueError, match="checksum"):
        read_vector(stored, len(body))
    with pytest.raises(ValueError, match="log says"):
        read_vector(stored, len(body) + 1)


@given(
    st.integers(1, 60), st.sets(st.integers(0, 70)), st.none() | st.sets(st.integers(0, 70)),
    st.lists(st.integers(1, 7), min_size=1),
)  # fmt: skip
def test_no_row_is_lost_or_kept_whatever_pieces_a_file_is_read_in(count, without, only, pieces):
    chosen = Chosen(
        np.array(sorted(without), np.int64),
        None if only is None else np.array(sorted(only), np.int64),
    )
    table, found, first = pa.table({"row": range(count)}), [], 0
    while first < count:
        piece = table.slice(first, pieces[len(found) % len(pieces)])
        mask = chosen.mask(first, piece.num_rows)
        found.append((piece if mask is None else piece.filter(mask))["row"].to_pylist())
        first += piece.num_rows
    expected = [row for row in range(count) if row not in without and (only is None or row in only)]
    assert [row for piece in found for row in piece] == expected
