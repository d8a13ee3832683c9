"""Plan a read of a log of very many files: time and memory per file stay flat.

    python benchmarks/planner.py [--files 1000000]

Logs of 10,000, 100,000 and 1,000,000 files are simulated, as JSON commits and as a checkpoint. Each
is loaded, counted, pruned with a filter and cut into tasks in a process of its own, so that the
peak memory is its own. The last line prints the goals; a miss ends with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COMMIT_FILES = 10_000
FILTER = "id BETWEEN 5000000 AND 5009999 AND day = '2020-01-20'"
FIELDS = (("id", "long"), ("s", "string"), ("x", "double"), ("day", "date"))
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS
        ],
    }
)
HEAD = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "b", "format": {"provider": "parquet", "options": {}}, "schemaString": SCHEMA,
            "partitionColumns": ["day"], "configuration": {}, "createdTime": 0,
        }
    },
)  # fmt: skip


def add(number: int) -> dict[str, object]:
    day = f"2020-01-{number % 28 + 1:02d}"
    low = number * 1000
    stats = {
        "numRecords": 1000,
        "minValues": {"id": low, "s": f"s{low}", "x": low / 7},
        "maxValues": {"id": low + 999, "s": f"s{low + 999}", "x": low / 7 + 1},
        "nullCount": {"id": 0, "s": 0, "x": 3},
    }
    return {
        "path": f"day={day}/part-{number:07d}-0d3a9f6e-c000.snappy.parquet",
        "partitionValues": {"day": day},
        "size": 100_000_000,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def write_json_log(folder: Path, files: int) -> None:
    """Commits of 10,000 files each."""
    for version, first in enumerate(range(0, files, COMMIT_FILES)):
        lines = [json.dumps(action) for action in (HEAD if version == 0 else ())]
        last = min(first + COMMIT_FILES, files)
        lines += ['{"add":' + json.dumps(add(number)) + "}" for number in range(first, last)]
        (folder / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def struct(**children: pa.DataType) -> pa.StructType:
    return pa.struct(list(children.items()))


def write_checkpoint(folder: Path, files: int) -> None:
    """One checkpoint with all files."""
    text_map = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [
            ("protocol", struct(minReaderVersion=pa.int32(), minWriterVersion=pa.int32())),
            (
                "metaData",
                struct(
                    id=pa.string(),
                    schemaString=pa.string(),
                    partitionColumns=pa.list_(pa.string()),
                    configuration=text_map,
                ),
            ),
            (
                "add",
                struct(
                    path=pa.string(),
                    partitionValues=text_map,
                    size=pa.int64(),
                    modificationTime=pa.int64(),
                    dataChange=pa.bool_(),
                    stats=pa.string(),
                ),
            ),
        ]
    )
    empty = {"protocol": None, "metaData": None, "add": None}
    metadata = {**HEAD[1]["metaData"], "configuration": []}
    with pq.ParquetWriter(folder / f"{0:020d}.checkpoint.parquet", schema) as writer:
        head = [empty | HEAD[0], empty | {"metaData": metadata}]
        writer.write_table(pa.Table.from_pylist(head, schema=schema))
        for first in range(0, files, COMMIT_FILES):
            adds = [add(number) for number in range(first, min(first + COMMIT_FILES, files))]
            rows = [
                empty | {"add": item | {"partitionValues": list(item["partitionValues"].items())}}
                for item in adds
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def measure(path: str) -> None:
    """Plan in this process; print seconds of each step and the peak memory."""
    from headrace.bridge.plan import plan_reads
    from headrace.delta.binding import bind
    from headrace.delta.pruning import files_that_match
    from headrace.delta.snapshot import load_snapshot
    from headrace.delta.sql_filters import parse_filter

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = {}
    started = time.perf_counter()

    def done(step: str) -> None:
        nonlocal started
        steps[step] = time.perf_counter() - started
        started = time.perf_counter()

    snapshot = load_snapshot(path)
    done("load")
    rows = snapshot.row_count
    done("count")
    bound = bind(parse_filter(FILTER), snapshot.schema, table=path, text=FILTER)
    left = int(files_that_match(snapshot.files, bound, snapshot.metadata).sum())
    done("prune")
    tasks = plan_reads(snapshot)
    done("cut")
    assert rows == snapshot.file_count * 1000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"steps": steps, "mib": (peak - before) / 1024, "left": left, "tasks": len(tasks)}
    sys.stdout.write(json.dumps(result))


def run(kind: str, files: int) -> float:
    """Make a log, plan it in a new process, print a line; seconds of everything."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "_delta_log"
        log.mkdir()
        (write_json_log if kind == "commits" else write_checkpoint)(log, files)
        command = [sys.executable, __file__, "--measure", folder]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(output)
    seconds = sum(found["steps"].values())
    steps = "  ".join(f"{name} {value:6.2f} s" for name, value in found["steps"].items())
    print(
        f"{kind:10} {files:>9,} files  {steps}  {seconds / files * 1e6:6.1f} us and "
        f"{found['mib'] / files * 1024:5.2f} KiB a file  ({found['left']} left by the filter)"
    )
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--measure")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return 0
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size <= arguments.files]
    is_flat = True
    for kind in ("commits", "checkpoint"):
        each = [run(kind, size) / size for size in sizes]
        is_flat &= each[-1] <= 1.5 * min(each)
    verdict = "met" if is_flat else "MISSED"
    print(f"goal: seconds per file at {sizes[-1]:,} files at most 1.5 times the least: {verdict}")
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
