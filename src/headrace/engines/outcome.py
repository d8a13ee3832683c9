"""What an ended attempt comes to: its result, or the error that says why there is none."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headrace import exceptions
from headrace.engines.log_tail import log_end
from headrace.engines.process_tree import Process
from headrace.engines.spec import (
    EXIT_FILE,
    LOG_FILE,
    RESULT_FILE,
    AttemptResult,
    AttemptSpec,
    untag_tables,
)
from headrace.engines.usage import Usage
from headrace.exceptions import (
    DiskFullError,
    HeadraceError,
    MemoryLimitError,
    TaskCancelledError,
    TaskCrashedError,
    TaskFailedError,
    TaskTimeoutError,
)

EXIT_DISK_FULL: Final = 74


@dataclass
class Ending:
    """How an attempt ended, as the flow's process saw it.

    Attributes:
        why: Why it was ended: `cancel`, `timeout` or `memory`; empty when it ended by itself.
        exit_code: Exit code of the supervisor.
        timeout_s: The time limit.
        used_mib: Memory when it went over its limit.
        largest: The largest process then.
        usage: What it used.
        left: Processes that could not be ended.
    """

    why: str = ""
    exit_code: int = 0
    timeout_s: float = 0.0
    used_mib: int = 0
    largest: str = ""
    usage: Usage = field(default_factory=Usage)
    left: list[Process] = field(default_factory=list)


def read_outcome(spec: AttemptSpec, ending: Ending) -> AttemptResult:
    """Give the attempt's result, or raise the error that tells why there is none."""
    result = _read_json(spec.folder / RESULT_FILE)
    told = AttemptResult.model_validate(
        {
            **{name: (result or {}).get(name, []) for name in ("reads", "writes", "attachments")},
            "usage": replace(ending.usage, **(result or {}).get("counts", {})),
            "log_path": spec.folder / LOG_FILE,
        }
    )
    # What was ended from outside has no result, even one that came at the last moment.
    if ending.why or result is None or (result["ok"] and ending.exit_code != 0):
        raise _with_facts(_crash(spec, ending), told)
    if not result["ok"]:
        raise _with_facts(_failure(spec, result), told)
    told.value = untag_tables(result["value"])
    return told


def _with_facts(error: HeadraceError, told: AttemptResult) -> HeadraceError:
    """Give an error what is known of its attempt, as the attribute `attempt`."""
    error.values["attempt"] = told
    error.attempt = told  # type: ignore[attr-defined]
    return error


def _failure(spec: AttemptSpec, result: dict[str, Any]) -> HeadraceError:
    """An error that the child reported: headrace's own as itself, the task's as a failed task."""
    return rebuild_error(result) or TaskFailedError(
        task=spec.task,
        error_type=result["error_type"],
        error_bases=tuple(result.get("error_bases", ())),
        error_message=result["error_message"],
        traceback=result["traceback"],
        log_path=str(spec.folder / LOG_FILE),
        retryable=result["retryable"],
    )


def rebuild_error(told: dict[str, Any]) -> HeadraceError | None:
    """The error that another process described, when it is one of headrace's own."""
    kind = getattr(exceptions, told["error_type"].removeprefix("headrace.exceptions."), None)
    if "values" in told and isinstance(kind, type) and issubclass(kind, HeadraceError):
        return kind(**told["values"])
    return None


def _crash(spec: AttemptSpec, ending: Ending) -> TaskCrashedError:
    log = spec.folder / LOG_FILE
    told = {"task": spec.task, "log_path": str(log), "tail": log_end(log)}
    exited = _read_json(spec.folder / EXIT_FILE) or {}
    if ending.why == "cancel":
        return TaskCancelledError(how="was cancelled", **told)
    if ending.why == "timeout":
        return TaskTimeoutError(how="took too long", timeout_s=ending.timeout_s, **told)
    if ending.why == "memory":
        return MemoryLimitError(
            how="used too much memory",
            profile=spec.profile.name,
            limit_mib=spec.profile.memory_mib,
            used_mib=ending.used_mib,
            largest=ending.largest,
            **told,
        )
    if ending.exit_code == EXIT_DISK_FULL or _is_full(spec.folder):
        return DiskFullError(how="found no space left", folder=str(spec.folder), **told)
    return TaskCrashedError(how=_how(ending, exited), **told)


def _how(ending: Ending, exited: dict[str, Any]) -> str:
    if exited.get("ended_by") == "lease":
        return "was ended, since the flow's process stood still for longer than its lease"
    if exited.get("ended_by") == "signal":
        return "was ended by a signal from outside"
    status = exited.get("status")
    code = ending.exit_code if status is None else os.waitstatus_to_exitcode(status)
    if code == 128 + signal.SIGTERM:
        return "was ended by SIGTERM from outside"
    if code >= 0:
        return f"exited with code {code} without a result"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "a signal"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name} (signal {-code}){hint}"


def _is_full(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < 2**16


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found
