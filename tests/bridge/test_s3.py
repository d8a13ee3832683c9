"""Tables in a real S3 store: read and written from memory, kept apart from other writers."""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid

import pyarrow as pa
import pytest

from headrace.context import TaskContext, use_context
from headrace.delta.arrow import read_arrow
from headrace.delta.arrow_write import write_arrow
from headrace.delta.log import TableFiles, commit_versions
from headrace.exceptions import StorageAccessError
from tests.bridge.fault_proxy import open_proxy

pytestmark = pytest.mark.s3


@pytest.fixture
def lake(s3_store):
    """A context whose lake is a fresh folder of the store."""
    address = f"s3://{s3_store.bucket}/{uuid.uuid4().hex[:8]}"
    context = TaskContext(run_id="r", task="t", lake=address, storage=s3_store.storage())
    with use_context(context):
        yield context


@pytest.fixture
def proxy(s3_store):
    with open_proxy(s3_store.storage()) as found:
        yield found


def at(context, storage):
    """The same task with another storage."""
    return use_context(
        TaskContext(run_id="r", task=uuid.uuid4().hex, lake=context.lake, storage=storage)
    )


def objects(context, name):
    """Keys of a table's objects, below its root."""
    from pyarrow import fs

    root = f"{context.lake}/{name}".removeprefix("s3://")
    found = context.storage.filesystem().get_file_info(fs.FileSelector(root, recursive=True))
    return {item.path.removeprefix(root) for item in found if item.type == fs.FileType.File}


def ids(name):
    return sorted(read_arrow(name)["id"].to_pylist())


def test_every_mode_works_and_leaves_no_other_object(lake):
    rows = {"id": [1, 2, 3], "p": ["a b", "ü/%2F", None]}
    write_arrow(rows, "t x+y", partition_by=["p"], key=("1",))
    write_arrow({"id": [4], "p": ["a b"]}, "t x+y", key=("2",))
    write_arrow({"id": [4], "p": ["a b"]}, "t x+y", key=("2",))
    assert ids("t x+y") == [1, 2, 3, 4]
    write_arrow({"id": [1, 9], "p": ["a b", "n"]}, "t x+y", mode="merge", merge_on="id", key=("3",))
    write_arrow({"id": [7], "p": [None]}, "t x+y", mode="overwrite_partitions", key=("4",))
    assert ids("t x+y") == [1, 2, 4, 7, 9]
    assert read_arrow("t x+y", filter="p = 'ü/%2F'")["id"].to_pylist() == [2]
    write_arrow({"id": [0], "p": ["x"]}, "t x+y", mode="overwrite", key=("5",))
    assert ids("t x+y") == [0]
    logs = [name for name in objects(lake, "t x+y") if "_delta_log" in name]
    assert len(logs) == 5


def test_delta_rs_reads_what_is_written_and_the_other_way_round(lake):
    from deltalake import DeltaTable, write_deltalake

    options = lake.storage.delta_options()
    write_arrow({"id": [1, 2]}, "t")
    write_deltalake(f"{lake.lake}/t", pa.table({"id": [3]}), mode="append", storage_options=options)
    assert ids("t") == [1, 2, 3]
    table = DeltaTable(f"{lake.lake}/t", storage_options=options)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]


def test_writers_of_both_kinds_at_once_lose_nothing(lake):
    from deltalake import write_deltalake

    write_arrow({"id": [-1]}, "t", key=("first",))
    errors = []

    def ours(number):
        for step in range(5):
            value = number * 100 + step
            write_arrow({"id": [value]}, f"{lake.lake}/t", key=(str(value),))

    def theirs(number):
        for step in range(5):
            rows = pa.table({"id": [number * 100 + step]})
            write_deltalake(
                f"{lake.lake}/t", rows, mode="append", storage_options=lake.storage.delta_options()
            )

    def guarded(work, number):
        try:
            with at(lake, lake.storage):
                work(number)
        except BaseException as error:
            errors.append(error)

    works = [ours, theirs, ours, theirs]
    threads = [
        threading.Thread(target=guarded, args=(work, number)) for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    wanted = [-1, *(number * 100 + step for number in range(4) for step in range(5))]
    assert ids("t") == wanted
    assert commit_versions(TableFiles(f"{lake.lake}/t", lake.storage)) == list(range(21))


# --- troubles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["503", "reset", "half"])
def test_a_read_gets_over_what_a_network_does(lake, proxy, s3_store, kind):
    rows = pa.table({"id": range(50_000)})
    write_arrow(rows, "t")
    with at(lake, s3_store.storage(endpoint=proxy.address)):
        for path in ("list-type", r"\.json", r"\.parquet"):
            proxy.make(kind, "GET", path, times=2)
        assert read_arrow("t").num_rows == 50_000
    assert [trouble.times for trouble in proxy.troubles] == [0, 0, 0]


@pytest.mark.parametrize("kind", ["503", "reset", "lost"])
def test_a_write_gets_over_what_a_network_does_and_commits_once(lake, proxy, s3_store, kind):
    write_arrow({"id": [1]}, "t")
    with at(lake, s3_store.storage(endpoint=proxy.address)):
        for path in (r"\.parquet", r"_delta_log/.*\.json"):
            proxy.make(kind, "PUT|POST", path, times=2)
        ref = write_arrow({"id": [2, 3]}, "t")
    assert ref.version == 1
    assert ids("t") == [1, 2, 3]
    assert proxy.troubles[1].times == 0
    assert len(objects(lake, "t")) == 4


def test_a_store_that_stays_away_is_named_and_leaves_nothing(lake, proxy, s3_store, monkeypatch):
    monkeypatch.setattr("headrace.profiles.storage._TRIES", 2)
    write_arrow({"id": [1]}, "t")
    before = objects(lake, "t")
    with at(lake, s3_store.storage(endpoint=proxy.address)):
        proxy.make("503", "PUT|POST", r"\.parquet", times=100)
        with pytest.raises(StorageAccessError, match="did not serve"):
            write_arrow({"id": [2]}, "t")
    assert objects(lake, "t") == before


# --- credentials ---------------------------------------------------------------------------------


def refused(proxy, s3_store):
    return s3_store.storage(endpoint=proxy.address, session_token="old")


def test_expired_credentials_are_named_without_a_secret(lake, proxy, s3_store):
    write_arrow({"id": [1]}, "t")
    proxy.tokens = {"new"}
    with at(lake, refused(proxy, s3_store)):
        for work in (lambda: read_arrow("t"), lambda: write_arrow({"id": [2]}, "t")):
            with pytest.raises(StorageAccessError, match="refuses the credentials") as caught:
                work()
            assert caught.value.refused
            assert s3_store.secret_key not in f"{caught.value}{caught.value.__cause__}"
            assert "old" not in str(caught.value)


def test_credentials_that_a_store_refuses_are_renewed(lake, proxy, s3_store, tmp_path):
    """The command notes each of its runs; nobody told when the credentials end."""
    write_arrow({"id": range(10), "p": range(10)}, "t", partition_by=["p"])
    keys = {"access_key": s3_store.access_key, "secret_key": s3_store.secret_key}
    printed = json.dumps(keys | {"session_token": "new"})
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print({printed!r})"
    command = (sys.executable, "-c", code)
    storage = s3_store.storage(endpoint=proxy.address, session_token="old", refresh_command=command)
    proxy.tokens = {"new"}
    with at(lake, storage):
        assert ids("t") == list(range(10))
        write_arrow({"id": [10], "p": [0]}, "t")
        assert ids("t") == list(range(11))
    assert (tmp_path / "runs").read_text() == "x"


def test_credentials_that_end_in_the_middle_of_a_read_are_renewed(lake, proxy, s3_store, tmp_path):
    from headrace.delta.data_files import read_files
    from headrace.delta.reading import plain_spec
    from headrace.delta.snapshot import load_snapshot

    write_arrow({"id": range(6), "p": range(6)}, "t", partition_by=["p"])
    keys = {"access_key": s3_store.access_key, "secret_key": s3_store.secret_key}
    printed = json.dumps(keys | {"session_token": "new"})
    storage = s3_store.storage(
        endpoint=proxy.address,
        session_token="old",
        refresh_command=(sys.executable, "-c", f"print({printed!r})", str(tmp_path)),
    )
    proxy.tokens = {"old"}
    with at(lake, storage):
        snapshot = load_snapshot(f"{lake.lake}/t", storage=storage)
        read = read_files(plain_spec(snapshot), snapshot.files)
        found = next(read)["id"].to_pylist()
        proxy.tokens = {"new"}
        found += [value for table in read for value in table["id"].to_pylist()]
    assert sorted(found) == list(range(6))


def test_an_address_without_tls_has_to_be_allowed(s3_store):
    with pytest.raises(ValueError, match="allow_http"):
        s3_store.storage(allow_http=False)


def test_nothing_of_the_credentials_is_in_the_environment(lake, s3_store):
    write_arrow({"id": [1]}, "t")
    assert ids("t") == [1]
    assert not any(s3_store.secret_key in value for value in os.environ.values())
