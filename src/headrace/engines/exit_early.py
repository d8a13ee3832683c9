"""The end of a process whose result is written: nothing after that may change its exit code."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Run a process's main function and end with its exit code: 1 after an exception.

    Python's own end is kept: threads are waited for, `atexit` runs, output is flushed. Only the
    destructors of C++ libraries are left out: a thread of an S3 client that is still alive there
    aborts the process, and a task that had succeeded would count as failed.
    """
    codes = [1]
    # What is registered first runs last.
    atexit.register(_end, codes)
    try:
        codes[0] = main()
    except SystemExit as asked:
        codes[0] = _code(asked.code)
        raise
    sys.exit(codes[0])


def _code(asked: object) -> int:
    if asked is None:
        return 0
    return asked if isinstance(asked, int) else 1


def _end(codes: list[int]) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # Closed, gone, or None: what else could be told, and where?
            continue
    os._exit(codes[0] & 0xFF)
