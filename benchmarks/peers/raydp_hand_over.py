"""RayDP's hand-over of a DataFrame, run by `bridge.py --raydp PYTHON` in an environment with RayDP.

Reads the Parquet files of a table (RayDP's Spark is too old for Delta 4.4), hands the rows with an
id below a bound to Ray, and prints the seconds of the second time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(table: str, rows: int) -> None:
    import ray
    import raydp

    ray.init(num_cpus=4, include_dashboard=False)
    spark = raydp.init_spark("bridge", num_executors=1, executor_cores=2, executor_memory="2g")
    files = [str(path) for path in Path(table).glob("*.parquet")]
    frame = spark.read.parquet(*files).where(f"id < {rows}")

    def count(batch: dict) -> dict:
        return {"rows": [len(batch["id"])]}

    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        counted = ray.data.from_spark(frame).map_batches(count).materialize()
        found = sum(row["rows"] for row in counted.take_all())
        seconds = time.perf_counter() - started
        assert found == rows
    print(f"hand-over of {rows:,} rows in {seconds:.2f} s (from_spark, rows kept in Spark)")
    raydp.stop_spark()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
