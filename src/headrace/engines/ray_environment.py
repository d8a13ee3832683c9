"""Environment variables that Ray reads when it is imported and when its processes start."""

from __future__ import annotations

import os
import sys
from typing import Final

RAY_REPORT_MS: Final = 500
"""Workers tell the cluster so often what they did."""

_ENVIRONMENT: Final = {
    "RAY_task_events_report_interval_ms": str(RAY_REPORT_MS),
    # A busy machine needs longer than a minute to start a training's workers.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    # Helpers beside each training: for spot machines, and for a dashboard that isn't there.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Despite its name, this keeps Ray on 127.0.0.1 here too, and not on the network's address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_COLOR_PREFIX": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    # Ray makes a token by itself; without it another user of the machine could connect.
    "RAY_AUTH_MODE": "token",
    # A busy machine needs longer than the usual 30 s to bring the parts up.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_gcs_server_request_timeout_seconds": "120",
    # headrace watches the memory of the whole task and names the profile when it ends one.
    "RAY_memory_monitor_refresh_ms": "0",
}


def ray_environment(*, new_process: bool = False) -> dict[str, str]:
    """What headrace sets for Ray, where the user has set nothing else.

    A process that imported Ray before has settled how it authenticates: a cluster with a token
    would turn it away.

    Args:
        new_process: Whether it is for a process that is yet to start, and not for this one.
    """
    values = {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}
    if not new_process and "ray" in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        del values["RAY_AUTH_MODE"]
    return values
