"""`python -m headrace.engines._child SPEC`: the process of one attempt.

It becomes the attempt's supervisor and forks the process that runs the task.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.engines.exit_early import run_and_exit
from headrace.engines.supervisor import fork_task


def main() -> int:
    """Run the attempt that the spec describes; the exit code is 0 when a result was written."""
    spec_path = Path(sys.argv[1])
    fork_task(spec_path)
    # Only the forked process gets here: the supervisor stays small.
    from headrace.engines.task_process import run_task

    return run_task(spec_path)


if __name__ == "__main__":
    run_and_exit(main)
