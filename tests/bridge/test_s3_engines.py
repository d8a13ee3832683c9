"""Ray on tables in a real S3 store; Spark's part is tests/delta/test_log_store.py."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path

import pytest

from headrace.bridge.read import from_delta, from_spark
from headrace.bridge.write import to_delta
from headrace.context import TaskContext, use_context
from headrace.delta.arrow import read_arrow
from headrace.exceptions import StorageAccessError
from tests.bridge.fault_proxy import open_proxy

pytestmark = [pytest.mark.s3, pytest.mark.ray]


@pytest.fixture
def lake(s3_store, ray_cluster):
    address = f"s3://{s3_store.bucket}/{uuid.uuid4().hex[:8]}"
    context = TaskContext(run_id="r", task="t", lake=address, storage=s3_store.storage())
    with use_context(context):
        yield context


def numbers(count, blocks):
    import ray

    return ray.data.range(count, override_num_blocks=blocks)


def test_hundreds_of_files_go_there_and_back(lake, s3_store):
    rows = numbers(3000, 20).map_batches(lambda b: {"id": b["id"], "p": b["id"] % 10})
    ref = to_delta(rows, "many", partition_by="p")
    assert (ref.row_count, ref.file_count >= 100) == (3000, True)
    assert sorted(row["id"] for row in from_spark(ref).take_all()) == list(range(3000))
    few = from_delta("many", filter="p = 3 AND id < 100", columns=["id"])
    assert sorted(row["id"] for row in few.take_all()) == list(range(3, 100, 10))


def test_workers_have_no_credential_in_their_environment_or_logs(lake, s3_store, ray_cluster):
    import ray

    secret = s3_store.secret_key

    def look(batch):
        shown = [name for name, value in os.environ.items() if secret in value]
        return {"leaks": [len(shown)]}

    to_delta(numbers(10, 2), "plain")
    assert sum(row["leaks"] for row in from_delta("plain").map_batches(look).take_all()) == 0
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    assert not [p for p in logs.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def test_workers_renew_credentials_that_a_store_refuses(lake, s3_store):
    to_delta(numbers(40, 4), "t")
    keys = {"access_key": s3_store.access_key, "secret_key": s3_store.secret_key}
    command = (sys.executable, "-c", f"print({json.dumps(keys | {'session_token': 'new'})!r})")
    with open_proxy(s3_store.storage()) as proxy:
        storage = s3_store.storage(endpoint=proxy.address, session_token="old")
        with use_context(TaskContext(lake=lake.lake, storage=storage)):
            proxy.tokens = {"old"}
            refused = from_delta("t")  # planned while the credentials were good
            proxy.tokens = {"new"}
            with pytest.raises(StorageAccessError, match="refuses the credentials"):
                refused.materialize()
        able = storage.model_copy(update={"refresh_command": command})
        with use_context(TaskContext(lake=lake.lake, storage=able)):
            proxy.tokens = {"old", "new"}
            dataset = from_delta("t")
            proxy.tokens = {"new"}
            assert dataset.count() == 40
            assert to_delta(numbers(5, 1), "t").row_count == 45


def test_a_store_that_stumbles_loses_and_doubles_nothing(lake, s3_store):
    to_delta(numbers(4000, 8), "t")
    with open_proxy(s3_store.storage()) as proxy:
        storage = s3_store.storage(endpoint=proxy.address)
        with use_context(TaskContext(lake=lake.lake, storage=storage)):
            for kind in ("503", "half", "reset"):
                proxy.make(kind, "GET", r"\.parquet", times=3)
            dataset = from_delta("t")
            assert sorted(row["id"] for row in dataset.take_all()) == list(range(4000))
            proxy.make("lost", "PUT", r"_delta_log/.*\.json", times=1)
            proxy.make("503", "PUT|POST", r"\.parquet", times=2)
            to_delta(numbers(10, 2), "t")
        assert all(trouble.times == 0 for trouble in proxy.troubles)
    assert read_arrow("t").num_rows == 4010
