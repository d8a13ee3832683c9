"""A model for each of 1,000 groups: `ml.train_per_group` against `applyInPandas` by hand.

    python benchmarks/groups.py [--groups 1000] [--rows 200] [--rounds 2]

Both train the same scikit-learn model of each group on one Spark session, log all models to MLflow
as one registered pyfunc, and write a table of results. By hand twice: as one would write it first,
and with a repartition by group, without which Spark puts small groups into one partition. The
last line has the time beside its goal, at most a tenth more than by hand with the repartition;
the exit code is 1 when it is missed.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import ml, read_table, write_table
from headrace.context import TaskContext, use_context
from headrace.delta.arrow import write_arrow
from headrace.engines.spark import open_spark
from headrace.profiles.models import SparkProfile
from headrace.tables import TableRef

GOAL = 1.1
FEATURES = ["a", "b", "c", "d"]
WARM_UP_GROUPS = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200, help="of each group")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    profile = SparkProfile(name="bench", cores=cores, memory_mib=4096)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        _use_mlflow(Path(folder))
        context = TaskContext(lake=f"{folder}/lake", cores=cores, memory_mib=4096)
        with use_context(context), open_spark(profile) as spark:
            small = _make("small", WARM_UP_GROUPS, options.rows)
            table = _make("rows", options.groups, options.rows)
            ways: dict[str, Callable[[TableRef], Any]] = {
                "by hand, first try": lambda ref: by_hand(spark, ref, partitions=None),
                "by hand": lambda ref: by_hand(spark, ref, partitions=4 * cores),
                "headrace": by_headrace,
            }
            for way in ways.values():
                way(small)
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(options.rounds):
                for name, way in ways.items():
                    taken[name].append(_seconds(lambda way=way: way(table)))
    seconds = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in taken.items():
        print(f"{name}: {', '.join(f'{value:.1f}' for value in times)} s")
    ratio = seconds["headrace"] / seconds["by hand"]
    first = seconds["headrace"] / seconds["by hand, first try"]
    print(f"headrace against the first try by hand: {first:.2f}")
    print(f"headrace against by hand {ratio:.3f} (goal at most {GOAL:.2f})")
    return int(ratio > GOAL)


def fit(frame: Any) -> Any:
    """The model of one group: some tens of milliseconds."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(max_iter=30).fit(frame[FEATURES], frame["y"])


def by_headrace(table: TableRef) -> Any:
    return ml.train_per_group(
        table, by="carrier", fit=fit, model="ours", features=FEATURES, target="y"
    )


def by_hand(spark: Any, table: TableRef, *, partitions: int | None) -> Any:
    """The same with what Spark and MLflow offer."""
    import mlflow
    import pandas as pd

    def train(key: Any, frame: Any) -> Any:
        began = time.perf_counter()
        model = pickle.dumps(fit(frame))
        seconds = time.perf_counter() - began
        return pd.DataFrame(
            {"carrier": [key[0]], "rows": [len(frame)], "seconds": [seconds], "model": [model]}
        )

    rows = read_table(table, spark=spark)
    if partitions is not None:
        rows = rows.repartition(partitions, "carrier")
    trained = rows.groupBy("carrier").applyInPandas(
        train, "carrier string, rows long, seconds double, model binary"
    )
    found = trained.toPandas()
    with tempfile.TemporaryDirectory() as folder, mlflow.start_run():
        path = Path(folder, "models.pkl")
        path.write_bytes(pickle.dumps(dict(zip(found["carrier"], found["model"], strict=True))))
        mlflow.log_metrics({"groups": len(found)})
        mlflow.pyfunc.log_model(
            name="by-hand",
            python_model=_router(),
            artifacts={"models": str(path)},
            pip_requirements=["scikit-learn"],
            registered_model_name="by-hand",
        )
    results = spark.createDataFrame(found.drop(columns="model"))
    return write_table(results, "by_hand", mode="overwrite", key=())


def _router() -> Any:
    """A pyfunc that routes rows by carrier; its class is made where MLflow has been imported."""
    import mlflow

    class Router(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def load_context(self, context: Any) -> None:
            content = Path(context.artifacts["models"]).read_bytes()
            self.models = pickle.loads(content)  # noqa: S301 - its own

        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:  # noqa: ARG002
            import pandas as pd

            parts = [
                pd.Series(pickle.loads(self.models[key]).predict(rows[FEATURES]), rows.index)  # noqa: S301
                for key, rows in model_input.groupby("carrier")
            ]
            return pd.concat(parts).loc[model_input.index]

    return Router()


def _make(name: str, groups: int, rows: int) -> TableRef:
    generator = np.random.default_rng(1)
    count = groups * rows
    columns: dict[str, Any] = {"carrier": [f"C{number % groups:04}" for number in range(count)]}
    for feature in FEATURES:
        columns[feature] = generator.normal(size=count)
    columns["y"] = columns["a"] * 2 + generator.normal(size=count)
    return write_arrow(pa.table(columns), name, mode="overwrite", key=())


def _use_mlflow(folder: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    mlflow.set_experiment("bench")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
