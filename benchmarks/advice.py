"""Where one process, Spark and Ray cross over on this machine, for per-group training and scoring.

    python benchmarks/advice.py [--mib 8 48 160] [--save]

Tables of several sizes are trained on (a small model for each of 64 groups) and scored by each of
the three; every engine's start counts. A line through the times gives an engine's start and speed,
and `ml.advise` compares engines by these. `--save` writes them for the project that this is run
in; `headrace advise` uses them from then on. The last line tells whether the advice from these
speeds chose, at each size, what was fastest or within a fifth and ten seconds of it; the exit
code is 1 where it did not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import ml, read_arrow
from headrace.context import TaskContext, use_context
from headrace.delta.arrow import write_arrow
from headrace.engines.ray import open_ray
from headrace.engines.spark import open_spark
from headrace.ml.advice import Machine, Speeds
from headrace.ml.advising import speeds_file, speeds_from
from headrace.profiles.models import RayProfile, SparkProfile
from headrace.tables import TableRef

FEATURES = [f"f{number}" for number in range(8)]
GROUPS = 64
# A group's number, the features and the target, 8 bytes each.
ROW_BYTES = 8 * (len(FEATURES) + 2)
MEMORY_MIB = 6144
ENGINES = ("python", "spark", "ray")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[8, 48, 160])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        _use_mlflow(Path(folder))
        context = TaskContext(lake=f"{folder}/lake", cores=cores, memory_mib=MEMORY_MIB)
        with use_context(context):
            tables = {mib: _make(mib) for mib in options.mib}
            model = _register_model()
            taken = {
                goal: {engine: _measure(engine, goal, tables, model, cores) for engine in ENGINES}
                for goal in ("train", "score")
            }
            values = {
                "origin": f"measured on this machine with {cores} cores",
                **{
                    goal: {engine: _line(times, engine, cores) for engine, times in found.items()}
                    for goal, found in taken.items()
                },
            }
            wrong = _check(tables, taken, speeds_from(values), cores)
    for goal in ("train", "score"):
        print(f"{goal}: {_crossover(values[goal], cores)}")
    if options.save:
        path = speeds_file()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values, indent=1) + "\n")
            print(f"written to {path}")
    print(json.dumps(values))
    total = 2 * len(options.mib)
    print(f"advice right {total - len(wrong)} of {total} times (goal {total}) {' '.join(wrong)}")
    return int(bool(wrong))


def _measure(
    engine: str, goal: str, tables: dict[int, TableRef], model: str, cores: int
) -> dict[int, float]:
    """Seconds by MiB, the engine's start included."""
    found = {}
    with _engine(engine, cores) as start_s:
        for mib, table in tables.items():
            # The first job of an engine belongs to its start, so each size counts it in full.
            began = time.perf_counter()
            _work(engine, goal, table, model)
            found[mib] = start_s + time.perf_counter() - began
            print(f"{goal} {engine} {mib} MiB: {found[mib]:.1f} s", flush=True)
    return found


@contextmanager
def _engine(engine: str, cores: int) -> Any:
    began = time.perf_counter()
    if engine == "spark":
        with open_spark(SparkProfile(name="b", cores=cores, memory_mib=MEMORY_MIB)):
            yield time.perf_counter() - began
    elif engine == "ray":
        with open_ray(RayProfile(name="b", cores=cores, memory_mib=MEMORY_MIB)):
            yield time.perf_counter() - began
    else:
        yield 0.0


def _work(engine: str, goal: str, table: TableRef, model: str) -> None:
    if engine == "python":
        # One core: threads of one process that wait for each other are another story.
        with ml.thread_caps(1):
            (_train_here if goal == "train" else _score_here)(table, model)
    elif goal == "train":
        ml.train_per_group(
            table, by="key", fit=fit, model="bench", features=FEATURES, target="y", backend=engine
        )
    else:
        ml.score(table, model, to=f"scored-{engine}", key="key", backend=engine)


def fit(frame: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(max_iter=20).fit(frame[FEATURES], frame["y"])


def _train_here(table: TableRef, model: str) -> None:
    """Pandas and scikit-learn in one process, logged as one model."""
    import mlflow

    frame = read_arrow(table).to_pandas()
    models = {key: fit(rows) for key, rows in frame.groupby("key")}
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            models[0],
            name="first",
            pip_requirements=["scikit-learn"],
            serialization_format="cloudpickle",
        )
    del model


def _score_here(table: TableRef, model: str) -> None:
    import mlflow

    rows = read_arrow(table)
    predicted = mlflow.pyfunc.load_model(model).predict(rows.select(FEATURES).to_pandas())
    write_arrow(
        pa.table({"key": rows["key"], "prediction": predicted}), "scored", mode="overwrite", key=()
    )


def _line(times: dict[int, float], engine: str, cores: int) -> dict[str, float]:
    """Start and speed of one core, by least squares; never below nothing."""
    sizes = np.array(list(times), dtype=float)
    seconds = np.array(list(times.values()))
    slope, start = np.polyfit(sizes, seconds, 1) if len(sizes) > 1 else (0.0, seconds[0])
    workers = 1 if engine == "python" else cores
    return {
        "start_s": round(max(float(start), 0.0), 2),
        "mib_per_s": round(1 / (max(float(slope), 1e-4) * workers), 2),
    }


def _crossover(speeds: dict[str, dict[str, float]], cores: int) -> str:
    """From which size on another engine is faster than one process."""
    alone = 1 / speeds["python"]["mib_per_s"]
    found = []
    for engine in ENGINES[1:]:
        each = 1 / (speeds[engine]["mib_per_s"] * cores)
        ahead = speeds[engine]["start_s"] - speeds["python"]["start_s"]
        crossing = ahead / (alone - each) if alone > each else None
        found.append(f"{engine} {'never' if crossing is None else f'from {crossing:,.0f} MiB on'}")
    return f"faster than one process: {', '.join(found)}"


def _check(
    tables: dict[int, TableRef],
    taken: dict[str, dict[str, dict[int, float]]],
    speeds: Speeds,
    cores: int,
) -> list[str]:
    """Where the advice was wrong."""
    machine = Machine(profile="bench", cores=cores, memory_mib=float(MEMORY_MIB))
    wrong = []
    for goal, found in taken.items():
        for mib, table in tables.items():
            advice = ml.advise(table, goal=goal, by="key", machine=machine, speeds=speeds)
            chosen = found[advice.engine][mib]
            best = min(times[mib] for times in found.values())
            if chosen > best / 0.8 and chosen > best + 10:
                wrong.append(f"{goal}-{mib}:{advice.engine}")
    return wrong


def _make(mib: int) -> TableRef:
    generator = np.random.default_rng(mib)
    count = mib * 2**20 // ROW_BYTES
    columns: dict[str, Any] = {"key": np.arange(count) % GROUPS}
    for feature in FEATURES:
        columns[feature] = generator.normal(size=count)
    columns["y"] = columns["f0"] * 2 + generator.normal(size=count)
    return write_arrow(pa.table(columns), f"rows-{mib}", mode="overwrite", key=())


def _register_model() -> str:
    import mlflow

    generator = np.random.default_rng(1)
    frame = pa.table({name: generator.normal(size=2_000) for name in FEATURES}).to_pandas()
    frame["y"] = frame["f0"] * 2
    info = mlflow.sklearn.log_model(
        fit(frame),
        name="scorer",
        signature=mlflow.models.infer_signature(frame[FEATURES], frame["y"]),
        pip_requirements=["scikit-learn"],
        serialization_format="cloudpickle",
        registered_model_name="scorer",
    )
    return f"models:/scorer/{info.registered_model_version}"


def _use_mlflow(folder: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    mlflow.set_experiment("bench")


if __name__ == "__main__":
    sys.exit(main())
