"""The bridge beside its peers: each case with its peer in the same run, rows checked equal.

    python benchmarks/bridge.py [--rows 8000000] [--only full,filter,plan,spark,write]
        [--raydp PYTHON]

Prints one line for each case: seconds of headrace, seconds of the peer, the ratio, the goal. The
last line says which goals were missed; a miss ends with exit code 1. Everything runs warm: each
side once before it is timed. Ray's own time for an empty dataset is printed first, since it is in
every figure. Rows are checked by number and by the sum of their ids. `--raydp` names a Python with
RayDP, which needs an older Spark than Delta 4.4 and so an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILES = 10
SMALL_FILES = 2_000
PLAN_FILES = 100_000


@dataclass
class Result:
    """One case."""

    name: str
    ours: float
    peer: float
    peer_name: str
    goal: float  # ours / peer at most

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached."""
        return self.ours <= self.goal * self.peer

    def __str__(self) -> str:
        verdict = "met" if self.is_met else "MISSED"
        return (
            f"{self.name:34} {self.ours:7.2f} s   {self.peer_name:34} {self.peer:7.2f} s   "
            f"ratio {self.ours / self.peer:5.2f}   goal <= {self.goal:4.2f} {verdict}"
        )


def rows_of(first: int, count: int) -> pa.Table:
    """Eleven columns of the usual kinds."""
    random = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    words = pa.array([f"word-{number:04d}" for number in range(5_000)])
    return pa.table(
        {
            "id": ids,
            "day": pa.array(18_000 + ids // 100_000 % 365, pa.int32()).cast(pa.date32()),
            "time": pa.array(ids * 1_000_003, pa.timestamp("us", "UTC")),
            "carrier": words.take(pa.array(random.integers(0, 16, count))),
            "tail": words.take(pa.array(random.integers(0, 5_000, count))),
            "origin": words.take(pa.array(random.integers(0, 300, count))),
            "delay": pa.array(random.normal(10, 30, count), mask=random.random(count) < 0.02),
            "distance": random.integers(50, 5_000, count).astype(np.int32),
            "air_time": random.integers(20, 700, count),
            "price": random.random(count),
            "is_late": random.random(count) < 0.2,
        }
    )


def write_table(path: Path, rows: int, files: int) -> str:
    """A Delta table by delta-rs, so that every peer can read it."""
    from deltalake import write_deltalake

    each = rows // files
    for number in range(files):
        write_deltalake(str(path), rows_of(number * each, each), mode="append")
    return str(path)


def timed(work: Callable[[], Any], *, warm: bool = True) -> tuple[float, Any]:
    """Seconds of the second call, and what it gave."""
    if warm:
        work()
    started = time.perf_counter()
    value = work()
    return time.perf_counter() - started, value


def count_batches(dataset: Any) -> tuple[int, int]:
    """Run a map over a dataset that counts rows and adds up their ids."""

    def count(batch: pa.Table) -> pa.Table:
        ids = pc.sum(batch["id"]).as_py() if "id" in batch.column_names else 0
        return pa.table({"rows": [batch.num_rows], "ids": [ids or 0]})

    counted = dataset.map_batches(count, batch_format="pyarrow", batch_size=None).materialize()
    found = counted.take_all()
    return sum(row["rows"] for row in found), sum(row["ids"] for row in found)


def first(rows: int) -> tuple[int, int]:
    """What `count_batches` gives for the ids from 0 up to a number of rows."""
    return rows, rows * (rows - 1) // 2


class DriverMemory:
    """Peak resident memory of this process over what it has at the start, in MiB."""

    def __enter__(self) -> Self:
        self._process = psutil.Process()
        self._start = self._peak = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, self._process.memory_info().rss)

    @property
    def grown_mib(self) -> float:
        """The growth."""
        return (self._peak - self._start) / 2**20


def drain(dataset: Any) -> int:
    return sum(len(batch["id"]) for batch in dataset.iter_batches(batch_size=65_536))


def decode(path: str) -> int:
    """Decode one file as fast as a single reader can."""
    import polars as pl

    return pl.read_parquet(path).height


def decode_all(pool: ProcessPoolExecutor, table: str) -> int:
    return sum(pool.map(decode, map(str, Path(table).glob("*.parquet"))))


def full_read(folder: Path, rows: int) -> list[Result]:
    import ray

    from headrace import from_delta

    table = write_table(folder / "full", rows, FILES)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        limit, found = timed(lambda: decode_all(pool, table))
        assert found == rows
    ours, found = timed(lambda: count_batches(from_delta(table)))
    assert found == first(rows)
    peer, found = timed(lambda: count_batches(ray.data.read_delta(table)))
    assert found == first(rows)
    ours_batches, found = timed(lambda: drain(from_delta(table)))
    assert found == rows
    peer_batches, found = timed(lambda: drain(ray.data.read_delta(table)))
    assert found == rows
    return [
        Result("full read with a map", ours, limit, "polars, a process per core", 1.5),
        Result("full read with a map", ours, peer, "ray.data.read_delta", 1 / 5),
        Result("full read into batches", ours_batches, peer_batches, "ray.data.read_delta", 1 / 3),
    ]


def selective(folder: Path, rows: int) -> list[Result]:
    import ray
    from ray.data.expressions import col

    from headrace import from_delta
    from headrace.bridge.read import apply_filter, plain_request
    from headrace.delta.snapshot import load_snapshot

    each = max(rows // 40 // SMALL_FILES, 10)
    table = folder / "many"
    write_by_hand(table, [rows_of(number * each, each) for number in range(SMALL_FILES)])
    low = each * 1_234
    wanted = (col("id") >= low) & (col("id") < low + 2 * each)
    request, _ = apply_filter(plain_request(load_snapshot(str(table))), wanted)
    assert request.files.num_rows == 2, "only the matching files are opened"
    ours, found = timed(lambda: from_delta(table, filter=wanted).materialize().count())
    assert found == 2 * each
    peer, found = timed(
        lambda: ray.data.read_delta(str(table)).filter(expr=wanted).materialize().count()
    )
    assert found == 2 * each
    return [Result("selective filter on 2,000 files", ours, peer, "ray.data.read_delta", 1 / 10)]


def planning(folder: Path) -> list[Result]:
    from deltalake import DeltaTable

    from headrace.bridge.plan import plan_reads
    from headrace.delta.snapshot import load_snapshot

    table = folder / "plan"
    write_log(table, PLAN_FILES)
    ours, found = timed(lambda: len(plan_reads(load_snapshot(str(table)))))
    assert found > 0
    peer, _ = timed(lambda: DeltaTable(str(table)).to_pyarrow_dataset(), warm=False)
    return [Result("planning 100,000 files", ours, peer, "delta-rs to_pyarrow_dataset", 1 / 5)]


def with_spark(folder: Path, rows: int) -> list[Result]:
    """Hand-over of a DataFrame, and deletion vectors, which Spark writes."""
    import ray

    from headrace import from_delta, from_spark
    from headrace.context import TaskContext, use_context
    from headrace.engines.spark import open_spark
    from headrace.profiles.models import SparkProfile

    profile = SparkProfile(name="benchmark", cores=os.cpu_count() or 1, memory_mib=3072)
    full = str(folder / "full")
    part = max(rows // 8, 1000)
    with (
        open_spark(profile, app_name="bridge") as spark,
        use_context(TaskContext(lake=str(folder / "lake"))),
    ):
        table = spark.read.format("delta").load(full)
        frame = table.where(f"id < {part}")
        ours, found = timed(lambda: count_batches(from_spark(frame)))
        assert found == first(part)
        peer, found = timed(lambda: count_batches(ray.data.from_pandas(frame.toPandas())))
        assert found == first(part)
        hand_over_memory(table, part)
        vectors, plain = f"{folder}/vectors", f"{folder}/plain"
        for target, feature in ((vectors, "true"), (plain, "false")):
            spark.sql(
                f"create table delta.`{target}` shallow clone delta.`{full}` "
                f"tblproperties ('delta.enableDeletionVectors' = '{feature}')"
            )
        spark.sql(f"delete from delta.`{vectors}` where id % 20 = 7")  # noqa: S608
    gone = range(7, rows, 20)
    masked, found = timed(lambda: count_batches(from_delta(vectors)))
    assert found == (rows - len(gone), first(rows)[1] - sum(gone))
    bare, found = timed(lambda: count_batches(from_delta(plain)))
    assert found == first(rows)
    return [
        Result(f"hand-over of {part:,} rows", ours, peer, "toPandas and from_pandas", 1 / 3),
        Result("deletion vectors on 5 % of rows", masked, bare, "the same table without", 1.2),
    ]


def hand_over_memory(table: Any, part: int) -> None:
    """Print how far the driver's memory grows in a hand-over, and in one four times as large."""
    import ray

    from headrace import from_spark

    for rows in (part, 4 * part):
        frame = table.where(f"id < {rows}")
        with DriverMemory() as ours:
            assert count_batches(from_spark(frame)) == first(rows)
        with DriverMemory() as peer:
            assert count_batches(ray.data.from_pandas(frame.toPandas())) == first(rows)
        print(
            f"driver memory, {rows:,} rows handed over: from_spark +{ours.grown_mib:,.0f} MiB, "
            f"toPandas and from_pandas +{peer.grown_mib:,.0f} MiB"
        )


def with_raydp(folder: Path, rows: int, python: str | None) -> None:
    """Print what RayDP needs for the same hand-over, in its own environment."""
    if python is None:
        print("RayDP: left out; it needs Spark 3.5 and an environment of its own (--raydp PYTHON)")
        return
    script = Path(__file__).parent / "peers" / "raydp_hand_over.py"
    done = subprocess.run(
        [python, script, folder / "full", str(max(rows // 8, 1000))],
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1:]
    print(f"RayDP: {' '.join(last)}")


def write_back(folder: Path, rows: int) -> list[Result]:
    import ray

    from headrace import from_delta, to_delta

    part = ray.data.from_arrow_refs([ray.put(rows_of(0, rows // 4))]).repartition(4).materialize()
    numbers = iter(range(100))

    def ours() -> int:
        return from_delta(to_delta(part, str(folder / f"ours{next(numbers)}"))).count()

    def theirs() -> int:
        target = str(folder / f"theirs{next(numbers)}")
        part.write_delta(target)
        return ray.data.read_delta(target).count()

    seconds, found = timed(ours)
    assert found == rows // 4
    peer, found = timed(theirs)
    assert found == rows // 4
    return [Result("write back", seconds, peer, "Dataset.write_delta", 1.0)]


def write_by_hand(table: Path, pieces: list[pa.Table]) -> None:
    """A table of small files with statistics in one commit."""
    (table / "_delta_log").mkdir(parents=True)
    actions = head(pieces[0])
    for number, piece in enumerate(pieces):
        name = f"part-{number:05d}.parquet"
        pq.write_table(piece, table / name)
        low, high = piece["id"][0].as_py(), piece["id"][-1].as_py()
        actions.append(add(name, (table / name).stat().st_size, piece.num_rows, low, high))
    write_commit(table, actions)


def write_log(table: Path, files: int) -> None:
    """A log alone."""
    (table / "_delta_log").mkdir(parents=True)
    actions = head(rows_of(0, 1))
    for number in range(files):
        low = number * 1000
        actions.append(add(f"part-{number:07d}.parquet", 1_000_000, 1000, low, low + 999))
    write_commit(table, actions)


def head(sample: pa.Table) -> list[dict[str, Any]]:
    from deltalake import Schema

    schema = Schema.from_arrow(sample.schema).to_json()
    metadata = {
        "id": "bench", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": [], "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def add(name: str, size: int, rows: int, low: int, high: int) -> dict[str, Any]:
    bounds = {"minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    action = {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows, **bounds}),
    }
    return {"add": action}


def write_commit(table: Path, actions: list[dict[str, Any]]) -> None:
    lines = [json.dumps(action, separators=(",", ":")) for action in actions]
    (table / "_delta_log" / f"{0:020d}.json").write_text("\n".join(lines) + "\n")


def ray_overhead() -> float:
    import ray

    empty = pa.table({"id": pa.array([], pa.int64())})
    seconds, _ = timed(lambda: count_batches(ray.data.from_arrow(empty)))
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--only", default="full,filter,plan,spark,write")
    parser.add_argument("--raydp", metavar="PYTHON")
    arguments = parser.parse_args()
    rows = arguments.rows // FILES * FILES
    only = arguments.only.split(",")
    results = []
    from headrace.engines.ray import open_ray
    from headrace.profiles.models import RayProfile

    cores = os.cpu_count() or 1
    profile = RayProfile(name="benchmark", cores=cores, memory_mib=6144, object_store_mib=3072)
    with tempfile.TemporaryDirectory() as name, open_ray(profile):
        from ray.data import DataContext

        DataContext.get_current().enable_progress_bars = False
        folder = Path(name)
        print(f"{rows:,} rows, {cores} cores; an empty dataset costs Ray {ray_overhead():.2f} s")
        cases = {
            "full": lambda: full_read(folder, rows),
            "filter": lambda: selective(folder, rows),
            "plan": lambda: planning(folder),
            "spark": lambda: with_spark(folder, rows),
            "write": lambda: write_back(folder, rows),
        }
        for case, work in cases.items():
            if case in only:
                for result in work():
                    results.append(result)
                    print(result, flush=True)
        if "spark" in only:
            with_raydp(folder, rows, arguments.raydp)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the driver: {peak:,.0f} MiB")
    missed = [f"{result.name} ({result.peer_name})" for result in results if not result.is_met]
    print("missed: " + "; ".join(missed) if missed else f"all {len(results)} goals met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
