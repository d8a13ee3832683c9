"""Tables whose log is laid out in every way that the protocol allows, and in some that happen."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pyarrow as pa

from tests.delta.checkpoint_files import (
    ADD,
    CLASSIC,
    drop,
    file_of,
    state,
    write_checkpoint,
    write_lines,
)
from tests.delta.handmade import Log

TABLES: dict[str, Callable] = {}


def table(make: Callable) -> Callable:
    TABLES[make.__name__] = make
    return make


def ints(*values):
    return {"a": pa.array(values, pa.int32())}


def some_commits(path, count=5, **protocol):
    """A file in each commit, the fourth of which also removes the second file."""
    log = Log(path)
    rows = {"numRecords": 1}
    first = log.file("f0.parquet", ints(0), partition={"p": "x y"}, stats=rows)
    log.begin(("a", "integer"), ("p", "string"), partitions=["p"], more=[first], **protocol)
    for number in range(1, count):
        partition = {"p": None if number == 2 else f"v{number}"}
        name = f"f{number}.parquet"
        add = log.file(name, ints(number), partition=partition, stats=rows)
        log.commit(add, *([log.remove("f1.parquet")] if number == 3 else []))
    return log


def single(log, version, **options):
    target = file_of(log, f"{version:020d}.checkpoint.parquet")
    write_checkpoint(target, state(log, version), **options)


def parts(log, version, count, *, without=()):
    actions = state(log, version)
    for part in range(1, count + 1):
        if part not in without:
            name = f"{version:020d}.checkpoint.{part:010d}.{count:010d}.parquet"
            write_checkpoint(file_of(log, name), actions[part - 1 :: count])


# --- classic checkpoints -------------------------------------------------------------------------


@table
def commits_cleaned_up_to_the_checkpoint(path):
    log = some_commits(path)
    single(log, 3)
    drop(log, 1, 2)  # the clean-up was interrupted: the first one is still there
    file_of(log, "_last_checkpoint").write_text('{"version":2,"size":4}')


@table
def a_hint_that_is_garbage(path):
    log = some_commits(path)
    single(log, 2, row_group_size=2)
    drop(log, 0, 1)
    file_of(log, "_last_checkpoint").write_text("garbage")


@table
def parts_of_two_writers(path):
    log = some_commits(path)
    parts(log, 3, 2)
    parts(log, 3, 3, without=[2])
    drop(log, 0, 1, 2)


@table
def parts_that_are_not_all_there(path):
    log = some_commits(path)
    single(log, 1)
    parts(log, 3, 2, without=[2])
    drop(log, 0)


@table
def a_checkpoint_with_statistics_as_structs_only(path):
    log = Log(path)
    adds = [log.file(f"f{day}", ints(day), partition={"p": text}) for day, text in ((0, "2020-01-01"), (1, None))]  # fmt: skip
    log.begin(("a", "integer"), ("p", "date"), partitions=["p"], more=adds)
    bounds = pa.struct({"a": pa.int32()})
    fields = {name: kind for name, kind in ADD.items() if name != "stats"}
    fields["partitionValues_parsed"] = pa.struct({"p": pa.date32()})
    fields["stats_parsed"] = pa.struct(
        {"numRecords": pa.int64(), "minValues": bounds, "maxValues": bounds, "nullCount": pa.struct({"a": pa.int64()})}
    )  # fmt: skip
    actions = state(log, 0)
    for action in actions:
        if "add" in action:
            action["add"]["stats_parsed"] = {"numRecords": 1, "minValues": {"a": 0}}
    write_checkpoint(file_of(log, f"{0:020d}.checkpoint.parquet"), actions, add=fields)
    drop(log, 0)
    log.commit(log.file("f2", ints(2)))


@table
def a_checkpoint_without_a_null(path):
    log = some_commits(path)
    names = ("path", "partitionValues", "size", "modificationTime", "dataChange")
    fields = {name: pa.field(name, ADD[name], nullable=False) for name in names}
    kept = [action for action in state(log, 3) if "remove" not in action]
    target = file_of(log, f"{3:020d}.checkpoint.parquet")
    write_checkpoint(target, kept, add=fields, kinds=("add", "metaData", "protocol"))
    drop(log, 0, 1, 2)


# --- version 2 -----------------------------------------------------------------------------------

V2 = {"reader": 3, "writer": 7, "features": ["v2Checkpoint"]}
ALL_KINDS = (*CLASSIC, "checkpointMetadata", "sidecar")


def sidecar(log, number, actions):
    path = file_of(log, f"_sidecars/{uuid.UUID(int=number)}.parquet")
    size = write_checkpoint(path, actions, kinds=("add", "remove"))
    return {"sidecar": {"path": path.name, "sizeInBytes": size, "modificationTime": 1}}


def version_2(*, kind, sidecars, inline=False, name=None):
    def make(path):
        log = some_commits(path, **V2)
        actions = state(log, 3)
        small = [action for action in actions if not {"add", "remove"} & action.keys()]
        files = [action for action in actions if {"add", "remove"} & action.keys()]
        kept, away = (files[:2], files[2:]) if inline else ([], files)
        away = away if sidecars else []
        kept = kept if sidecars else files
        found = [sidecar(log, part, away[part::sidecars]) for part in range(sidecars)]
        top = [{"checkpointMetadata": {"version": 3}}, *small, *kept, *found]
        target = file_of(log, name or f"{3:020d}.checkpoint.{uuid.UUID(int=5**50)}.{kind}")
        if kind == "json":
            write_lines(target, top)
        else:
            write_checkpoint(target, top, kinds=ALL_KINDS)
        drop(log, 0, 1, 2)

    return make


TABLES["v2_json_with_sidecars"] = version_2(kind="json", sidecars=2)
TABLES["v2_parquet_with_sidecars"] = version_2(kind="parquet", sidecars=3)
TABLES["v2_json_without_sidecars"] = version_2(kind="json", sidecars=0)
TABLES["v2_json_with_some_of_both"] = version_2(kind="json", sidecars=2, inline=True)
TABLES["v2_under_the_classic_name"] = version_2(
    kind="parquet", sidecars=1, name=f"{3:020d}.checkpoint.parquet"
)


@table
def v2_by_two_writers(path):
    log = some_commits(path, **V2)
    for number in (9, 2**127):
        name = f"{3:020d}.checkpoint.{uuid.UUID(int=number)}.json"
        write_lines(file_of(log, name), [{"checkpointMetadata": {"version": 3}}, *state(log, 3)])
    drop(log, 0, 1, 2)


# --- compaction, and what else lies there --------------------------------------------------------


@table
def actions_that_undo_each_other(path):
    log = Log(path)
    adds = [log.file(f"f{number}.parquet", ints(number)) for number in range(4)]
    log.begin(("a", "integer"), more=adds[:2])
    gone = [log.remove(f"f{number}.parquet") for number in range(3)]
    log.commit(gone[0], adds[0], adds[1], gone[1], adds[2], gone[2], adds[3])


@table
def metadata_and_protocol_of_other_commits(path):
    log = some_commits(path, 2)
    old = json.loads(file_of(log, f"{0:020d}.json").read_text().splitlines()[1])["metaData"]
    fields = json.loads(old["schemaString"])
    fields["fields"].append({"name": "b", "type": "string", "nullable": True, "metadata": {}})
    log.commit({"metaData": old | {"schemaString": json.dumps(fields)}})
    log.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["neverHeardOf"]}})  # fmt: skip
