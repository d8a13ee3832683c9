"""A small frame and a validator, for a classic session and for one of Connect."""

from __future__ import annotations


def make_frame(spark):
    return spark.range(0, 200, 1, 2).selectExpr(
        "id % 17 as a", "id % 5 as b", "2.0 * (id % 17) - (id % 5) + (id % 3) as y"
    )


def make_validator(kind="CrossValidator", **options):
    from pyspark.ml import Pipeline, tuning
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression

    regression = LinearRegression(featuresCol="features", labelCol="y", maxIter=5)
    stages = [VectorAssembler(inputCols=["a", "b"], outputCol="features"), regression]
    grid = tuning.ParamGridBuilder().addGrid(regression.regParam, [0.0, 5.0, 50.0]).build()
    options = {"seed": 3, **({"numFolds": 2} if kind == "CrossValidator" else {}), **options}
    return getattr(tuning, kind)(
        estimator=Pipeline(stages=stages),
        estimatorParamMaps=grid,
        evaluator=RegressionEvaluator(labelCol="y", metricName="rmse"),
        **options,
    )
