"""Keys, modes, failures and other writers: what ends up in the log."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.context import TaskContext, use_context
from headrace.delta import commit
from headrace.delta.log import TableFiles, commit_name, commit_versions, read_commit
from headrace.delta.snapshot import load_snapshot
from headrace.delta.transaction import checkpointed_keys
from headrace.exceptions import (
    CommitExpiredError,
    CommitUnclearError,
    ConcurrentWriteError,
    ConstraintViolatedError,
    SchemaMismatchError,
    UnwritableTypeError,
    WriteRequestError,
)
from headrace.profiles.storage import Storage
from tests.delta.written import data_files, live_files, rows_of, write_arrow

ONE, TWO = {"id": [1]}, {"id": [2]}


def files_of(uri):
    return TableFiles(str(uri), Storage())


def ids(uri):
    return sorted(rows_of(load_snapshot(str(uri)).ref())["id"].to_pylist())


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "a table+%20")


def test_a_repeated_key_writes_nothing_and_gives_the_first_version(uri):
    first = write_arrow(ONE, uri, key=("run", "task"))
    write_arrow(TWO, uri)
    again = write_arrow(TWO, uri, key=("run", "task"), mode="overwrite")
    assert (again.version, again.row_count) == (first.version, 1) == (0, 1)
    assert ids(uri) == [1, 2]
    assert (
        write_arrow(TWO, uri, key=("run:task",)).version == 2
    )  # another key, not a spelling of it


def test_a_task_s_key_is_the_same_on_each_attempt_and_counts_its_writes(tmp_path):
    def attempt(number):
        with use_context(TaskContext(run_id="r", task="t", attempt=number, lake=str(tmp_path))):
            return [write_arrow(ONE, "a"), write_arrow(TWO, "a"), write_arrow(ONE, "b")]

    assert attempt(1) == attempt(2)
    assert (ids(tmp_path / "a"), ids(tmp_path / "b")) == ([1, 2], [1])


def test_what_was_cleaned_up_is_not_written_again(tmp_path):
    uri = str(tmp_path / "t")
    write_arrow(ONE, uri, key=("k",))
    write_arrow(TWO, uri)
    DeltaTable(uri).create_checkpoint()
    Path(uri, commit_name(0)).unlink()
    with pytest.raises(CommitExpiredError, match="version 1"):
        write_arrow(ONE, uri, key=("k",))
    write_arrow({"id": [3]}, uri, key=("other",))
    assert ids(uri) == [1, 2, 3]


def test_every_tenth_version_of_a_plain_table_has_a_checkpoint(tmp_path):
    uri = str(tmp_path / "t")
    for number in range(12):
        write_arrow({"id": [number]}, uri, key=("run", str(number)))
    names = files_of(uri).names("_delta_log")
    assert f"{10:020d}.checkpoint.parquet" in names
    for version in range(10):
        Path(uri, commit_name(version)).unlink()
    assert ids(uri) == list(range(12))
    assert "headrace:run:3" in checkpointed_keys(files_of(uri))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mode": "upsert"}, "does not exist"),
        ({"mode": "merge"}, "merge_on"),
        ({"merge_on": ["id"]}, "merge_on"),
        ({"replace_where": "id = 1"}, "replace_where"),
        ({"schema_mode": "overwrite"}, "replace its schema"),
        ({"mode": "merge", "merge_on": ["no"]}, "lacks"),
        ({"partition_by": ["id"]}, "partitioned"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(uri, options, word):
    write_arrow({"id": [1], "x": [1]}, uri)
    with pytest.raises(WriteRequestError, match=word):
        write_arrow({"id": [1], "x": [1]}, uri, **options)
    assert commit_versions(files_of(uri)) == [0]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"id": ["a"]}, UnwritableTypeError),
        ({"id": [1], "new": [1]}, SchemaMismatchError),
        ({"id": [1], "ID": [1]}, SchemaMismatchError),
    ],
)
def test_a_refused_write_leaves_no_file(uri, data, kind):
    write_arrow(ONE, uri)
    before = data_files(uri)
    with pytest.raises(kind):
        write_arrow(data, uri)
    assert data_files(uri) == before


def test_a_new_table_needs_columns_and_types(tmp_path):
    with pytest.raises(SchemaMismatchError, match="no columns"):
        write_arrow(pa.table({}), str(tmp_path / "a"))
    with pytest.raises(UnwritableTypeError, match="no type"):
        write_arrow({"x": pa.nulls(2)}, str(tmp_path / "b"))
    with pytest.raises(WriteRequestError, match="not in the data"):
        write_arrow(ONE, str(tmp_path / "c"), partition_by=["p"])
    assert list(tmp_path.rglob("*.parquet")) == []
    assert write_arrow(pa.table({"x": pa.array([], pa.int8())}), str(tmp_path / "d")).row_count == 0


def test_rows_outside_the_replaced_part_are_refused(uri):
    write_arrow({"id": [1, 2], "p": ["a", "b"]}, uri, partition_by=["p"])
    with pytest.raises(ConstraintViolatedError, match="replace_where"):
        write_arrow({"id": [3], "p": ["b"]}, uri, mode="overwrite", replace_where="p = 'a'")
    write_arrow({"id": [3], "p": ["a"]}, uri, mode="overwrite", replace_where="p = 'a'")
    assert ids(uri) == [2, 3]


def test_a_merge_refuses_two_rows_for_one_key(uri):
    write_arrow({"id": [1], "x": [0]}, uri)
    with pytest.raises(ConstraintViolatedError, match="same id"):
        write_arrow({"id": [1, 1], "x": [1, 2]}, uri, mode="merge", merge_on=["id"])
    with pytest.raises(SchemaMismatchError, match="x is missing"):
        write_arrow({"id": [1]}, uri, mode="merge", merge_on=["id"])
    assert data_files(uri) == live_files(uri)


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 6), st.sampled_from("ab")), max_size=6)


@settings(max_examples=25, deadline=None)
@given(
    ROWS,
    ROWS,
    st.sampled_from(["append", "overwrite", "overwrite_partitions", "merge", "where", "part"]),
)
def test_each_mode_does_what_it_says(tmp_path_factory, before, after, mode):
    if mode == "merge":
        after = list({row[0]: row for row in after}.values())
    if mode == "where":
        after = [row for row in after if row[0] is not None and row[0] >= 3]
    if mode == "part":
        after = [row for row in after if row[1] == "a"]
    uri = str(tmp_path_factory.mktemp("t"))
    write_arrow(table_of(before), uri, partition_by=["p"])
    options = {
        "merge": {"mode": "merge", "merge_on": ["id"]},
        "where": {"mode": "overwrite", "replace_where": "id >= 3"},
        "part": {"mode": "overwrite", "replace_where": "p = 'a'"},
    }.get(mode, {"mode": mode})
    ref = write_arrow(table_of(after), uri, **options)
    stays = {
        "append": lambda row: True,
        "overwrite": lambda row: False,
        "overwrite_partitions": lambda row: row[1] not in {p for _, p in after},
        "merge": lambda row: row[0] is None or row[0] not in {i for i, _ in after},
        "where": lambda row: row[0] is None or row[0] < 3,
        "part": lambda row: row[1] != "a",
    }[mode]
    wanted = [row for row in before if stays(row)] + after
    found = [(row["id"], row["p"]) for row in rows_of(ref).to_pylist()]
    order = lambda row: (row[0] is None, row[0] or 0, row[1])  # noqa: E731
    assert sorted(found, key=order) == sorted(wanted, key=order)
    assert ref.row_count == len(wanted)
    assert data_files(uri) == live_files(uri)


def table_of(rows):
    return pa.table(
        {
            "id": pa.array([i for i, _ in rows], pa.int64()),
            "p": pa.array([p for _, p in rows], pa.string()),
        }
    )


def between(monkeypatch, uri, other):
    """Have another writer commit right before this one's first try."""
    create, done = TableFiles.create, []

    def slow(self, relative, content, *, scratch):
        if not done:
            done.append(1)
            other()
        return create(self, relative, content, scratch=scratch)

    monkeypatch.setattr(TableFiles, "create", slow)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("append", [1, 2, 3]), ("overwrite", [3]), ("merge", [1, 2, 3]), ("replace_where", [1, 2, 3])],
)
def test_a_lost_race_is_run_again_on_the_newer_version(uri, monkeypatch, mode, wanted):
    write_arrow(ONE, uri)
    between(monkeypatch, uri, lambda: write_arrow(TWO, uri))
    options = {
        "merge": {"mode": "merge", "merge_on": ["id"]},
        "replace_where": {"mode": "overwrite", "replace_where": "id > 2"},
    }.get(mode, {"mode": mode})
    ref = write_arrow({"id": [3]}, uri, **options)
    assert ref.version == 2
    assert ids(uri) == wanted
    assert data_files(uri) == live_files(uri)


def test_a_merge_that_lost_the_race_does_not_double_the_other_writer_s_row(uri, monkeypatch):
    write_arrow({"id": [1, 3]}, uri)
    between(monkeypatch, uri, lambda: write_arrow({"id": [2, 4]}, uri))
    write_arrow({"id": [3, 4]}, uri, mode="merge", merge_on=["id"])
    assert ids(uri) == [1, 2, 3, 4]
    assert data_files(uri) == live_files(uri)


def test_the_same_key_from_two_attempts_at_once_is_one_write(uri, monkeypatch):
    write_arrow(ONE, uri)
    between(monkeypatch, uri, lambda: write_arrow(TWO, uri, key=("k",)))
    assert write_arrow(TWO, uri, key=("k",)).version == 1
    assert ids(uri) == [1, 2]
    assert data_files(uri) == live_files(uri)


def test_a_schema_that_changed_meanwhile_is_refused_by_name(uri, monkeypatch):
    write_arrow(ONE, uri)
    between(monkeypatch, uri, lambda: write_arrow({"id": [1], "x": [1]}, uri, schema_mode="merge"))
    with pytest.raises(ConcurrentWriteError, match="changed the table's schema") as caught:
        write_arrow(TWO, uri)
    assert (caught.value.read_version, caught.value.conflicting_version) == (0, 1)
    assert data_files(uri) == live_files(uri)


def test_two_writers_may_create_one_table_when_they_agree_on_it(tmp_path, monkeypatch):
    uri = str(tmp_path / "same")
    between(monkeypatch, uri, lambda: write_arrow(TWO, uri))
    assert write_arrow(ONE, uri).version == 1
    other = str(tmp_path / "other")
    between(monkeypatch, other, lambda: write_arrow({"id": ["x"]}, other))
    with pytest.raises(ConcurrentWriteError, match="another form"):
        write_arrow(ONE, other)


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(uri, monkeypatch):
    create = TableFiles.create

    def lossy(self, relative, content, *, scratch):
        create(self, relative, content, scratch=scratch)
        raise OSError("connection reset")

    write_arrow(ONE, uri)
    monkeypatch.setattr(TableFiles, "create", lossy)
    assert write_arrow(TWO, uri).version == 1
    assert ids(uri) == [1, 2]


def test_a_commit_that_nobody_answers_for_keeps_its_files_until_it_is_settled(uri, monkeypatch):
    def down(self, relative, content, *, scratch):
        raise OSError("no route to host")

    write_arrow(ONE, uri)
    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "create", down)
        with pytest.raises(CommitUnclearError, match="no route"):
            write_arrow(TWO, uri, key=("k",))
    assert data_files(uri) > live_files(uri)  # the store may still take the commit
    write_arrow(TWO, uri, key=("k",))
    assert data_files(uri) == live_files(uri)
    assert ids(uri) == [1, 2]


def test_an_interrupt_right_after_the_commit_keeps_the_files(uri, monkeypatch):
    write_arrow(ONE, uri)
    monkeypatch.setattr(commit.Committer, "_put", interrupted(commit.Committer._put))
    with pytest.raises(KeyboardInterrupt):
        write_arrow(TWO, uri)
    assert ids(uri) == [1, 2]


def interrupted(put):
    def wrapper(self, version, actions):
        put(self, version, actions)
        raise KeyboardInterrupt

    return wrapper


def test_many_threads_append_and_overwrite_without_losing_a_commit(uri):
    write_arrow({"id": [-1]}, uri)
    errors = []

    def work(number):
        try:
            write_arrow({"id": [number]}, uri, key=("run", str(number)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ids(uri) == [-1, *range(12)]
    assert commit_versions(files_of(uri)) == list(range(13))


def append_some(uri, first):
    for number in range(first, first + 5):
        write_arrow({"id": [number]}, uri)


def test_processes_append_at_once_without_losing_a_commit(uri):
    write_arrow({"id": [-1]}, uri)
    start = multiprocessing.get_context("spawn")
    workers = [start.Process(target=append_some, args=(uri, first)) for first in (0, 5, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert ids(uri) == [-1, *range(15)]
    assert data_files(uri) == live_files(uri)


def test_delta_rs_reads_what_is_written_and_goes_on_from_it(tmp_path):
    uri = str(tmp_path / "t")
    write_arrow({"id": [1, 2], "p": ["a b", None]}, uri, partition_by=["p"], key=("k",))
    table = DeltaTable(uri)
    assert pa.table(table.scan().read_all())["id"].to_pylist() == [1, 2]
    assert table.transaction_version("headrace:k") == 1
    assert json.loads(table.history()[0]["userMetadata"])["headrace"]["run"] == "local"
    table.delete("id = 1")
    write_arrow({"id": [3], "p": ["c"]}, uri)
    assert ids(uri) == [2, 3]
    assert read_commit(files_of(uri), 2)[0]["commitInfo"]["isBlindAppend"] is True
