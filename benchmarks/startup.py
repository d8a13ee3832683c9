"""What headrace costs before anything runs: CPU seconds of an import and of the help page.

    python benchmarks/startup.py [--repeats 5]

The last line has each figure beside its goal; the exit code is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

GOALS = {"import_cpu_s": 0.15, "help_cpu_s": 0.4}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    python = cpu_s([sys.executable, "-c", "pass"], repeats)
    figures = {
        "import_cpu_s": cpu_s([sys.executable, "-c", "import headrace"], repeats) - python,
        "help_cpu_s": cpu_s([sys.executable, "-m", "headrace", "--help"], repeats),
    }
    print(f"python alone {python:.3f} s of CPU")
    print(", ".join(f"{name} {figures[name]:.3f} (goal {goal})" for name, goal in GOALS.items()))
    return int(any(figures[name] > goal for name, goal in GOALS.items()))


def cpu_s(command: list[str], repeats: int) -> float:
    """CPU seconds of a command, the best of some runs after a first one that fills caches."""
    return min([_once(command) for _ in range(repeats + 1)][1:])


def _once(command: list[str]) -> float:
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


if __name__ == "__main__":
    sys.exit(main())
