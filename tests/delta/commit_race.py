"""Lets Spark, delta-rs and headrace append to one table on S3 at the same time, and counts.

Run as `python commit_race.py STORE COMMITS LOG_STORE`; STORE is JSON, COMMITS is how many each of
the writers makes, LOG_STORE is `ours` or a class of Delta's. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from headrace import write_arrow
from headrace.context import TaskContext, use_context
from headrace.engines.exit_early import run_and_exit
from headrace.engines.spark import open_spark
from headrace.exceptions import ConcurrentWriteError
from headrace.profiles.models import SparkProfile
from headrace.profiles.storage import Storage

URI = "s3://lake/race"


def main(store: str, commits: int, log_store: str) -> dict[str, Any]:
    storage = Storage(kind="s3", allow_http=True, **json.loads(store))
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    if log_store != "ours":
        conf |= {f"spark.delta.logStore.{scheme}.impl": log_store for scheme in ("s3", "s3a")}
    profile = SparkProfile(name="race", cores=2, memory_mib=1536, spark_conf=conf)
    options = storage.delta_options()
    write_deltalake(URI, rows_of("first", 0), storage_options=options)
    with open_spark(profile, storage=storage, app_name="race") as spark:
        found = {"replaced": replaces_a_commit(spark, options)} if log_store != "ours" else {}
        acknowledged = race(spark, storage, commits)
        spark_rows = [row[0] for row in spark.read.format("delta").load(f"{s3a(URI)}").collect()]
    table = DeltaTable(URI, storage_options=options)
    rows = table.to_pyarrow_table()["id"].to_pylist()
    kept = Counter(rows)
    return {
        **found,
        "acknowledged": dict(Counter(name.split("-")[0] for name in acknowledged)),
        "lost": sorted(name for name in acknowledged if kept[name] == 0),
        "doubled": sorted(name for name, times in kept.items() if times > 1),
        "version": table.version(),
        "same_for_spark": sorted(spark_rows) == sorted(rows),
    }


def rows_of(writer: str, number: int) -> pa.Table:
    return pa.table({"id": [f"{writer}-{number}"]})


def s3a(uri: str) -> str:
    return uri.replace("s3://", "s3a://")


def race(spark: Any, storage: Storage, commits: int) -> list[str]:
    """What each writer was told is committed."""
    acknowledged: list[str] = []
    ready = threading.Barrier(4)

    def by_spark(writer: str, number: int) -> None:
        frame = spark.createDataFrame([(f"{writer}-{number}",)], "id string")
        frame.write.format("delta").mode("append").save(s3a(URI))

    def by_delta_rs(writer: str, number: int) -> None:
        write_deltalake(
            URI, rows_of(writer, number), mode="append", storage_options=storage.delta_options()
        )

    def by_headrace(writer: str, number: int) -> None:
        with use_context(TaskContext(storage=storage, lake="s3://lake")):
            write_arrow(rows_of(writer, number), URI, mode="append", key=(writer, str(number)))

    def work(writer: str, write: Any) -> None:
        ready.wait()
        for number in range(commits):
            while not committed(write, writer, number):
                pass
            acknowledged.append(f"{writer}-{number}")

    writers = {
        "spark": by_spark,
        "another_spark": by_spark,
        "rust": by_delta_rs,
        "own": by_headrace,
    }
    with ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(work, name, write) for name, write in writers.items()]:
            done.result()
    return acknowledged


def committed(write: Any, writer: str, number: int) -> bool:
    """Whether a write went through; False when it says that another one was there before it."""
    try:
        write(writer, number)
    except (CommitFailedError, ConcurrentWriteError):
        return False
    except Exception as error:
        if "concurrent" not in str(error).lower():
            raise
        return False
    return True


def replaces_a_commit(spark: Any, options: dict[str, str]) -> bool:
    """Whether Spark's S3A replaces a commit that came after it had looked for one."""
    jvm = spark._jvm
    version = DeltaTable(URI, storage_options=options).version() + 1
    path = jvm.org.apache.hadoop.fs.Path(f"{s3a(URI)}/_delta_log/{version:020}.json")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    stream = files.create(path, False)  # here it looks ...
    write_deltalake(URI, rows_of("victim", 0), mode="append", storage_options=options)
    content = '{"commitInfo":{}}\n'
    stream.write(bytearray(content.encode()))
    stream.close()  # ... and here it puts
    left = spark.read.text(path.toString()).collect()
    return [row[0] for row in left] == [content.strip()]


def print_result() -> int:
    """What the test reads."""
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
    return 0


if __name__ == "__main__":
    run_and_exit(print_result)
