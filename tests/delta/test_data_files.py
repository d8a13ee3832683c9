"""Data files: whatever pieces they are read in, every row comes once and as the table has it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bridge.plan import plan_reads
from headrace.delta.arrow import read_arrow
from headrace.delta.binding import bind
from headrace.delta.data_files import read_files
from headrace.delta.parquet_files import coded_columns, count_leaves, open_parquet
from headrace.delta.reading import plain_spec
from headrace.delta.snapshot import load_snapshot
from headrace.delta.sql_filters import parse_filter
from headrace.exceptions import (
    RowCountError,
    RowCountWarning,
    SnapshotExpiredError,
    UnreadableColumnError,
    UnreadableFileError,
)
from tests.delta.handmade import Log
from tests.delta.handmade_tables import portable, z85


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Files of many row groups, one of them with deleted rows."""
    log = Log(tmp_path_factory.mktemp("pieces") / "t")
    gone = [0, 99, 100, 101, 250, 999]
    data = portable(gone)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(data),
        "sizeInBytes": len(data),
        "cardinality": len(gone),
    }
    adds = []
    for number, size in enumerate((1000, 1, 0, 700)):
        ids = range(number * 1000, number * 1000 + size)
        rows = pa.table(
            {"id": pa.array(ids, pa.int64()), "s": [f"word {value % 9} " * 20 for value in ids]}
        )
        dv = vector if number == 0 else None
        adds.append(
            log.file(
                f"f{number}.parquet", rows, row_group_size=100, dv=dv, stats={"numRecords": size}
            )
        )
    log.begin(
        ("id", "long"), ("s", "string"), reader=3, writer=7, features=["deletionVectors"], more=adds
    )
    wanted = [value for value in range(1000) if value not in gone] + [1000, *range(3000, 3700)]
    return str(log.path), wanted


@settings(deadline=None, max_examples=40)
@given(target=st.floats(0.0001, 0.02), low=st.integers(-1, 3800), size=st.integers(0, 2000))
def test_every_row_is_read_once_whatever_the_tasks_and_the_filter(pieces, target, low, size):
    path, wanted = pieces
    snapshot = load_snapshot(path)
    text = f"id > {low} AND id <= {low + size}"
    spec = replace(
        plain_spec(snapshot), filter=bind(parse_filter(text), snapshot.schema, table="", text=text)
    )
    tasks = plan_reads(snapshot, target_mib=target)
    found = [table["id"].to_pylist() for task in tasks for table in read_files(spec, task.files)]
    assert [value for part in found for value in part] == [
        value for value in wanted if low < value <= low + size
    ]


def test_texts_that_are_coded_are_decoded_to_plain_ones(tmp_path):
    log = Log(tmp_path / "t")
    rows = pa.table(
        {
            "s": [f"word {value % 9} " * 20 for value in range(5000)],
            "u": [str(value) for value in range(5000)],
        }
    )
    log.begin(("s", "string"), ("u", "string"), more=[log.file("f.parquet", rows)])
    with pq.ParquetFile(log.path / "f.parquet") as file:
        assert coded_columns(file.metadata) == ["s"]
    found = read_arrow(str(log.path))
    assert found.schema.types == [pa.string(), pa.string()]
    assert found.equals(rows)


def test_columns_come_in_the_order_that_was_asked_for(pieces):
    assert read_arrow(pieces[0], columns=["S", "id"]).column_names == ["s", "id"]


def test_the_schema_of_arrow_writers_is_not_followed(tmp_path):
    kinds = {
        "a": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        "z": pa.array([1, 2], pa.timestamp("us", "Asia/Tokyo")),
    }
    pq.write_table(pa.table(kinds), tmp_path / "f.parquet")
    with (
        pa.OSFile(str(tmp_path / "f.parquet")) as source,
        open_parquet(source, pre_buffer=False) as file,
    ):
        assert [str(kind) for kind in file.schema_arrow.types] == [
            "list<element: int32>",
            "timestamp[us, tz=UTC]",
        ]


def test_leaves_are_counted_as_parquet_does():
    nested = pa.struct(
        [
            ("a", pa.list_(pa.int32())),
            ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.int32())]))),
        ]
    )
    assert count_leaves(nested) == 4
    assert count_leaves(pa.dictionary(pa.int32(), pa.string())) == 1


def test_the_file_that_is_at_fault_is_named(tmp_path):
    log = Log(tmp_path / "t")
    adds = [
        log.file("text.parquet", {"a": ["x"]}),
        log.add("gone.parquet"),
        log.file("short.parquet", {"a": [1]}, stats={"numRecords": 5}),
        log.file("cut.parquet", {"a": [1]}),
        log.file("page.parquet", {"a": [1]}, compression="none", use_dictionary=False),
    ]
    adds[2]["add"]["size"] += 1
    damage(log.path / "cut.parquet", -4, b"PARE")
    damage(log.path / "page.parquet", 4, b"\xff" * 20)
    log.begin(("a", "long"), more=adds)
    snapshot = load_snapshot(str(log.path))
    errors = (
        UnreadableColumnError,
        SnapshotExpiredError,
        RowCountError,
        *[UnreadableFileError] * 2,
    )
    for at, error in enumerate(errors):
        with pytest.raises(error, match=adds[at]["add"]["path"]):
            list(read_files(plain_spec(snapshot), plan_reads(snapshot.files.slice(at, 1))[0].files))


def damage(path, at, content):
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + len(content)] = content
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("count", [5, 1, 0, -1, "many", None])
def test_rows_that_a_writer_miscounted_are_read_and_a_warning_names_the_file(tmp_path, count):
    log = Log(tmp_path / "t")
    log.begin(
        ("a", "long"), more=[log.file("f.parquet", {"a": [1, 2]}, stats={"numRecords": count})]
    )
    if isinstance(count, int) and count >= 0:
        with pytest.warns(RowCountWarning, match=rf"f.parquet .*says {count} rows, .* holds 2"):
            assert read_arrow(str(log.path)).num_rows == 2
    else:
        assert read_arrow(str(log.path)).num_rows == 2
        assert load_snapshot(str(log.path)).row_count is None
