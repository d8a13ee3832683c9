"""A process ends with the code of its main function, whatever C++ libraries do at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What a static object of C++ whose destructor aborts the process does.
ABORTS = "libc = ctypes.CDLL(None); libc.__cxa_atexit(libc.abort, None, None)"


def ended(body: str, run: str = "run_and_exit(main)") -> subprocess.CompletedProcess[str]:
    script = f"""
import atexit, ctypes, sys, threading, time
from headrace.engines.exit_early import run_and_exit
{ABORTS}
def main():
    {body}
{run}
"""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 0", 0),
        ("return 74", 74),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no')", 1),
        ("raise KeyError('gone')", 1),
    ],
)
def test_the_exit_code_is_that_of_main(body, code):
    assert ended(body).returncode == code


def test_without_it_the_destructor_changes_the_exit_code():
    assert ended("return 0", "sys.exit(main())").returncode == -6


def test_threads_exit_functions_and_output_are_waited_for():
    body = """
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
    print("main", end=" ")
    return 0"""
    assert ended(body).stdout == "main thread\nat exit\n"


def test_an_exception_is_shown():
    assert "KeyError: 'gone'" in ended("raise KeyError('gone')").stderr
