"""Plans: every byte of every file is read once, and tasks are alike."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bridge.plan import plan_reads
from headrace.delta.actions import files_schema

MIB = 1 << 20


def files_of(*sizes_mib, rows=10):
    count = len(sizes_mib)
    return pa.table(
        {
            "path": [f"f{number}" for number in range(count)],
            "size": [int(size * MIB) for size in sizes_mib],
            "modification_time": [0] * count,
            "stats": [f'{{"numRecords":{rows}}}'] * count,
            "dv": [None] * count,
        },
        schema=files_schema([]),
    )


def ranges(tasks):
    found = {}
    for task in tasks:
        for row in task.files.to_pylist():
            found.setdefault(row["path"], []).append((row["start"], row["end"]))
    return found


def test_a_large_file_is_cut_and_small_ones_are_joined():
    assert [task.size_mib for task in plan_reads(files_of(40, 40, 200), target_mib=100)] == [
        80,
        100,
        100,
    ]


def test_an_empty_table_gives_no_task():
    assert plan_reads(files_of()) == []


def test_a_size_of_zero_or_a_missing_one_does_not_lose_the_file():
    table = files_of(0, 0).set_column(1, "size", pa.array([None, 0], pa.int64()))
    assert len(ranges(plan_reads(table))) == 2


@settings(deadline=None)
@given(st.lists(st.floats(0, 900), max_size=40), st.floats(0.5, 300), st.integers(1, 50))
def test_every_byte_of_every_file_is_in_one_task(sizes, target, least):
    found = ranges(plan_reads(files_of(*sizes), target_mib=target, min_tasks=least))
    assert list(found) == [f"f{number}" for number in range(len(sizes))]
    for pieces in found.values():
        assert pieces[0][0] is None
        assert pieces[-1][1] is None
        assert [end for _, end in pieces[:-1]] == [start for start, _ in pieces[1:]]
        assert all(low is None or high is None or low < high for low, high in pieces)


@settings(deadline=None)
@given(st.lists(st.floats(1, 900), min_size=1, max_size=60))
def test_no_task_is_much_larger_than_wanted(sizes):
    assert max(task.size_mib for task in plan_reads(files_of(*sizes), target_mib=100)) <= 300


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_rows_are_known_when_no_file_is_cut(sizes):
    tasks = plan_reads(files_of(*sizes, rows=7))
    assert sum(task.row_count for task in tasks) == 7 * len(sizes)


def test_rows_are_unknown_of_a_part_of_a_file():
    assert {task.row_count for task in plan_reads(files_of(1000), target_mib=100)} == {None}
