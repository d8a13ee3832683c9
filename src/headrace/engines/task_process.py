"""Inside the task's process: load the function, open its engine, call it, write the result."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import inspect
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

from headrace.context import TaskContext, use_context
from headrace.engines.arguments import decode_arguments
from headrace.engines.counts import count_ray, count_spark
from headrace.engines.loading import load_function
from headrace.engines.own_errors import own_error
from headrace.engines.result import check_result
from headrace.engines.spec import RESULT_FILE, AttemptSpec
from headrace.exceptions import HeadraceError, UserError, error_bases, full_name

EXIT_FAILED: Final = 1
EXIT_DISK_FULL: Final = 74
_RESERVED: Final = 256 * 1024
_LONGEST_TEXT: Final = 16 * 1024


def run_task(spec_path: Path) -> int:
    """Run the task of a spec and write its result file.

    Returns:
        The exit code: 0 for a success, 1 when the task raised an error, 74 when there is no room
        for the result.
    """
    set_up_streams()
    spec = AttemptSpec.read(spec_path)
    draft = spec_path.with_name(f"{RESULT_FILE}.part")
    try:
        _reserve(draft)
        outcome = _send(spec) if spec.profile.where == "job" else perform(spec)
        _write_result(draft, outcome)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with contextlib.suppress(OSError):
            sys.stderr.write(f"no space left for the result in {spec.folder}\n")
        return EXIT_DISK_FULL
    return 0 if outcome["ok"] else EXIT_FAILED


def _send(spec: AttemptSpec) -> dict[str, Any]:
    """Let the task run as a job on its profile's cluster."""
    from headrace.engines.ray_job import run_job

    try:
        return run_job(spec)
    except Exception as error:  # noqa: BLE001  the flow's process raises it again
        return describe_error(error, "setup")


def perform(spec: AttemptSpec) -> dict[str, Any]:
    """Run the task in this process; what came of it, and what it read and wrote."""
    context = make_context(spec)
    outcome = _run(spec, context)
    outcome.update(_lineage(context))
    return outcome


def make_context(spec: AttemptSpec) -> TaskContext:
    """The context that the task sees."""
    return TaskContext(
        run_id=spec.run_id,
        task=spec.task,
        attempt=spec.attempt,
        key=spec.key,
        generation=spec.generation,
        cursors=spec.cursors,
        pipeline=spec.pipeline,
        parameters=spec.parameters,
        lake=spec.lake,
        storage=spec.storage,
        cores=spec.profile.cores,
        workers=spec.profile.workers,
        memory_mib=spec.profile.memory_mib,
        mlflow_run_id=spec.mlflow_run_id,
    )


def _run(spec: AttemptSpec, context: TaskContext) -> dict[str, Any]:
    """Call the task; every error becomes a value that JSON can hold."""
    stage = "setup"
    plain: Any = None
    counts: dict[str, int] = {}
    failure: dict[str, Any] | None = None
    try:
        function = load_function(spec)
        arguments = decode_arguments(spec.task, function, spec.arguments)
        with use_context(context), _open_engine(spec) as given:
            wanted = inspect.signature(function).parameters
            given["context"] = context
            arguments |= {name: item for name, item in given.items() if name in wanted}
            stage = "task"
            try:
                value = function(**arguments)
            except Exception as error:  # noqa: BLE001
                # While the engine is there: Py4J asks the JVM for the text of its errors.
                failure = describe_error(error, stage)
            counts = _counts(given)
            if failure is None:
                stage = "result"
                plain = check_result(spec.task, value)
            stage = "close"
    except Exception as error:  # noqa: BLE001  whatever the user's code raises
        if stage != "close":
            return {**describe_error(error, stage), "counts": counts}
        # What came of the task is known: an engine that stumbles on its way out may.
        logging.getLogger("headrace.engines").warning("closing the engine failed: %s", error)
    return (failure or {"ok": True, "value": plain}) | {"counts": counts}


def _counts(given: dict[str, Any]) -> dict[str, int]:
    """What the engine counted for the task."""
    if "spark" in given:
        return count_spark(given["spark"])
    return count_ray() if "ray_info" in given else {}


@contextmanager
def _open_engine(spec: AttemptSpec) -> Iterator[dict[str, Any]]:
    """Start the task's engine; yields what parameters may be named after."""
    scratch = spec.scratch or spec.folder
    if spec.profile.engine == "spark":
        from headrace.engines.spark import open_spark

        with open_spark(
            spec.profile,
            storage=spec.storage,
            app_name=f"{spec.pipeline}.{spec.task}",
            scratch=spec.folder / "spark",
            address=spec.address,
            root=spec.root,
        ) as session:
            yield {"spark": session}
    elif spec.profile.engine == "ray":
        from headrace.engines.ray import open_ray

        with open_ray(
            spec.profile, import_paths=[spec.root], address=spec.address, folder=scratch / "r"
        ) as info:
            yield {"ray_info": info}
    else:
        yield {}


def describe_error(error: BaseException, stage: str) -> dict[str, Any]:
    """An error as JSON values; headrace's own carry what it takes to raise them again."""
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
    told = own_error(error)
    kind = type(told)
    described: dict[str, Any] = {
        "ok": False,
        "stage": stage,
        "error_type": full_name(kind),
        "error_bases": error_bases(kind),
        "error_message": _message(told),
        "traceback": text if len(text) <= _LONGEST_TEXT else f"...{text[-_LONGEST_TEXT:]}",
        "retryable": not isinstance(told, UserError),
    }
    if isinstance(error, HeadraceError) and stage != "task":
        described["values"] = json.loads(json.dumps(error.values, default=str))
    return described


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_LONGEST_TEXT]
    except Exception as second:  # noqa: BLE001  an error class of the user's that can't say itself
        return f"(its text can't be made: {type(second).__name__})"


def _lineage(context: TaskContext) -> dict[str, Any]:
    def plain(items: list[Any]) -> list[dict[str, Any]]:
        return [{"ref": item.ref.model_dump(), "mode": item.mode} for item in items]

    return {
        "reads": plain(context.reads),
        "writes": plain(context.writes),
        "attachments": [asdict(item) for item in context.attachments],
    }


def _reserve(draft: Path) -> None:
    """Take the room for the result now, so that a disk that fills up later can't lose it."""
    with draft.open("wb") as handle:
        os.posix_fallocate(handle.fileno(), 0, _RESERVED)


def _write_result(draft: Path, outcome: dict[str, Any]) -> None:
    text = json.dumps(outcome).encode()
    with draft.open("r+b") as handle:
        handle.write(text)
        handle.truncate()
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(draft.with_name(RESULT_FILE))


def set_up_streams() -> None:
    """Lines reach the log at once, log records too, and TERM unwinds the task's `with` blocks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(line_buffering=True, errors="backslashreplace")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("py4j", "ray.data", "urllib3", "botocore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Where a native library crashes, the log shows the Python line that called it.
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _on_terminate)


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)
