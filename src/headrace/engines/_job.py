"""`python -m headrace.engines._job`: the process of a task that came to a Ray cluster as a job."""

from __future__ import annotations

import sys

from headrace.engines.job_process import run_sent_task

if __name__ == "__main__":
    sys.exit(run_sent_task())
