"""What a pipeline adds: to an empty task, and to the main job written by hand in one script.

    python benchmarks/overhead.py [--tasks 10] [--skip-job]

By hand means: one process, one Spark session, one Ray cluster, the same functions called one after
the other, and MLflow's own calls. The pipeline has a process and an engine for each task, as its
profiles say. The last line has each figure beside its goal; the exit code is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOB_TASKS = 5
NOOP_GOAL_CPU_S = 1.0

BY_HAND = """
import os, sys
sys.path.insert(0, {root!r})
import mlflow
from pathlib import Path
mlflow.set_tracking_uri("sqlite:///" + os.environ["BENCH_FOLDER"] + "/mlflow.db")
mlflow.set_experiment("by-hand")
from headrace.context import TaskContext, use_context
from headrace.engines.ray import open_ray
from headrace.engines.spark import open_spark
from headrace.profiles.load import load_environment
from tasks.build_features import build_features
from tasks.load_flights import load_flights
from tasks.report_delays import report_delays
from tasks.score_flights import score_flights
from tasks.train_delay_model import train_delay_model
profiles = load_environment(root=Path({root!r})).profiles
etl, train = profiles["etl"], profiles["train"]
context = TaskContext(
    lake=os.environ["BENCH_FOLDER"] + "/lake", cores=train.cores, workers=train.workers
)
with mlflow.start_run(), use_context(context):
    with open_spark(etl) as spark:
        tables = load_flights(None, spark=spark, context=context)
        features = build_features(tables, seed=7, spark=spark, context=context)
    with open_ray(train, import_paths=[Path({root!r})]):
        model = train_delay_model(features, seed=7)
        predictions = score_flights(features, model)
    report_delays({{**tables, "features": features}}, model, predictions)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--skip-job", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        os.environ |= {
            "HEADRACE_STATE": f"{folder}/state",
            "HEADRACE_PROJECT": str(ROOT),
            "BENCH_FOLDER": folder,
            "PREFECT_LOGGING_LEVEL": "ERROR",
        }
        try:
            figures = {"noop_cpu_s": (noop_cpu_s(options.tasks), NOOP_GOAL_CPU_S)}
            if not options.skip_job:
                by_hand_s, pipeline_s = job_s()
                print(f"by hand {by_hand_s:.1f} s, pipeline {pipeline_s:.1f} s")
                figures["job_s"] = (pipeline_s, 1.1 * by_hand_s + 2 * JOB_TASKS)
        finally:
            subprocess.run([sys.executable, "-m", "headrace", "down"], cwd=ROOT, check=False)
    print(", ".join(f"{k} {value:.2f} (goal {goal:.2f})" for k, (value, goal) in figures.items()))
    return int(any(value > goal for value, goal in figures.values()))


def noop_cpu_s(count: int) -> float:
    """CPU seconds, children's included, that headrace adds to one empty task."""
    sys.path.insert(0, str(Path(__file__).parent))
    import noop_flows

    noop_flows.headrace_flow(1)  # starts the server, makes MLflow's tables
    noop_flows.prefect_flow(1)
    added = []
    for flow in (noop_flows.prefect_flow, noop_flows.headrace_flow):
        few, many = (_cpu_s(lambda n=n, flow=flow: flow(n)) for n in (1, 1 + count))
        added.append((many - few) / count)
    print(f"empty task: Prefect {added[0]:.3f} s of CPU, headrace {added[1]:.3f} s")
    return added[1] - added[0]


def job_s() -> tuple[float, float]:
    """Wall seconds of the job by hand and as a pipeline, Prefect's server up already."""
    by_hand = _wall_s([sys.executable, "-c", BY_HAND.format(root=str(ROOT))])
    pipeline = _wall_s([sys.executable, "-m", "headrace", "run", "train_delays"])
    return by_hand, pipeline


def _cpu_s(work: Callable[[], object]) -> float:
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def _wall_s(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
