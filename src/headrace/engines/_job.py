"""`python -m headrace.engines._job`: the process of a task that came to a Ray cluster as a job."""

from __future__ import annotations

from headrace.engines.exit_early import run_and_exit
from headrace.engines.job_process import run_sent_task

if __name__ == "__main__":
    run_and_exit(run_sent_task)
