"""Files and tables in a real S3 store."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace import on_files, on_table
from tests.bridge.conftest import s3_store
from tests.orchestration.triggers.conftest import World, served

__all__ = ["s3_store"]

pytestmark = pytest.mark.s3


@pytest.fixture
def world(tmp_path, sqlite_url, s3_store):
    bucket = s3_store.bucket
    made = World(tmp_path, sqlite_url, lake=f"s3://{bucket}/tables", storage=s3_store.storage())
    yield made
    made.ledger.close()


def put(world, path, text="x"):
    with world.project.environment.storage.filesystem().open_output_stream(path) as stream:
        stream.write(text.encode())


def test_each_object_below_a_prefix_is_given_to_one_run(world, s3_store):
    bucket = s3_store.bucket
    trigger = on_files(
        f"s3://{bucket}/in/**/flights-?.csv",
        settle_s=2,
        name="f",
        parameters={"files": "{{ trigger.files }}"},
    )
    serving = world.serve(served(trigger))
    serving.turn()
    for path in ("in/flights-1.csv", "in/a/b/flights-2.csv", "in/flights-12.csv", "in/x.txt"):
        put(world, f"{bucket}/{path}")
    for _ in range(3):
        world.pass_s(30)
        serving.turn()
    put(world, f"{bucket}/in/flights-1.csv", "longer")
    for _ in range(3):
        world.pass_s(30)
        world.serve(served(trigger)).turn()
        serving.turn()
    given = [run.parameters["files"] for run in world.runs()]
    one, two = f"s3://{bucket}/in/flights-1.csv", f"s3://{bucket}/in/a/b/flights-2.csv"
    assert [sorted(files) for files in given] == [[two, one], [one]]


def test_a_table_in_the_store_gives_a_run_per_version(world, s3_store):
    trigger = on_table("flights", name="t", parameters={"version": "{{ trigger.version }}"})
    serving = world.serve(served(trigger))
    serving.turn()
    options = world.project.environment.storage.delta_options()
    uri = f"s3://{s3_store.bucket}/tables/flights"
    for _ in range(3):
        write_deltalake(uri, pa.table({"x": [1]}), mode="append", storage_options=options)
        serving.turn()
        serving.turn()
    assert [run.parameters["version"] for run in world.runs()] == [0, 1, 2]
