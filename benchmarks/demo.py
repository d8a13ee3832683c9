"""The whole main job on real data: wall time and memory over all processes.

    python benchmarks/demo.py

A new state folder is used, and Prefect's server is part of both figures: it starts with the job, as
it does for somebody who runs it for the first time. Memory counts what processes share once (PSS).
The last line has each figure beside its goal; the exit code is 1 when one is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
GOALS = {"wall_s": 300.0, "peak_gib": 4.0}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as state:
        env = {**os.environ, "HEADRACE_STATE": state, "HEADRACE_PROJECT": str(ROOT)}
        env.pop("PREFECT_API_URL", None)
        began = time.perf_counter()
        job = subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", "train_delays"],
            env=env,
            cwd=ROOT,
        )
        peak, parts = 0, {}
        while job.poll() is None:
            now = memory_of_all(job.pid, state)
            if sum(now.values()) > peak:
                peak, parts = sum(now.values()), now
            time.sleep(0.5)
        wall_s = time.perf_counter() - began
        subprocess.run([sys.executable, "-m", "headrace", "down"], env=env, cwd=ROOT, check=False)
    if job.returncode:
        print(f"the job failed with exit code {job.returncode}")
        return 1
    print("at the peak:", ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in top(parts)))
    figures = {"wall_s": wall_s, "peak_gib": peak / 2**30}
    print(", ".join(f"{name} {figures[name]:.2f} (goal {goal})" for name, goal in GOALS.items()))
    return int(any(figures[name] > goal for name, goal in GOALS.items()))


def memory_of_all(root: int, state: str) -> dict[str, int]:
    """Bytes by process name: the job's tree, and the server that lives in its state folder."""
    found: dict[str, int] = {}
    for process in psutil.process_iter():
        try:
            if not _belongs(process, root, state):
                continue
            size = process.memory_full_info().pss
            found[process.name()] = found.get(process.name(), 0) + size
        except psutil.Error:
            continue
    return found


def _belongs(process: psutil.Process, root: int, state: str) -> bool:
    if process.environ().get("HEADRACE_STATE") == state:
        return True
    return process.pid == root or any(parent.pid == root for parent in process.parents())


def top(parts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(parts.items(), key=lambda part: -part[1])[:8]


if __name__ == "__main__":
    sys.exit(main())
