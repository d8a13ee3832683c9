"""Run by a test in a process of its own: Spark Connect and a classic session don't mix."""

from __future__ import annotations

import json
import sys


def main(folder: str) -> None:
    from pyspark.ml import Pipeline
    from pyspark.sql import SparkSession
    from xgboost.spark import SparkXGBRegressor

    from headrace import ml
    from headrace.exceptions import MlRequestError
    from tests.ml.spark_grid import make_frame, make_validator

    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    frame = make_frame(spark)
    found = ml.fit_spark(make_validator(), frame, parallelism=2)
    plain = ml.fit_spark(make_validator().getEstimator(), frame)
    refused = []
    for call in (
        lambda: ml.fit_spark(Pipeline(stages=[SparkXGBRegressor()]), frame),
        lambda: ml.train_xgboost(frame, label="y", backend="spark"),
    ):
        try:
            call()
        except MlRequestError as error:
            refused.append(str(error))
    result = {
        "kind": type(frame).__module__,
        "metrics": found.metrics,
        "best": found.best,
        "rows": plain.model.transform(frame).count(),
        "refused": refused,
    }
    sys.stdout.write("RESULT " + json.dumps(result) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
