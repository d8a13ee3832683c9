"""Run by a test in a process of its own: Spark Connect and a classic session don't mix."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(folder: str) -> None:
    from pyspark.sql import SparkSession

    from headrace.bridge.dataframe import scanned_table
    from headrace.bridge.read import from_spark
    from headrace.context import TaskContext, use_context
    from headrace.engines.jars import jar_paths
    from headrace.engines.ray import open_ray
    from headrace.profiles.models import RayProfile

    jars = ",".join(map(str, jar_paths()))
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    context = TaskContext(run_id="connect", lake=f"{folder}/lake")
    table = f"{folder}/a table"
    profile = RayProfile(name="test", cores=2, memory_mib=1024, object_store_mib=128)
    with open_ray(profile), use_context(context):
        spark.range(50).selectExpr("id", "concat('s', id) s").write.format("delta").save(table)
        scan = spark.read.format("delta").load(table)
        plain = from_spark(scan)
        other = from_spark(scan.where("id < 5").selectExpr("id * 2 as double_id"))
        is_scan = scanned_table(scan) is not None
        spark.stop()
        result = {
            "kind": type(scan).__module__,
            "is_scan": is_scan,
            "staged": len(list(Path(context.lake).glob("_headrace/staging/connect/*"))),
            "plain": plain.count(),
            "rows": sorted(row["double_id"] for row in other.take_all()),
        }
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
