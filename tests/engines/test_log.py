from __future__ import annotations

import os
import subprocess
import textwrap
import threading

import psutil
import pytest

from headrace.engines.log_tail import LogTail, log_end
from headrace.exceptions import DiskFullError, StateFolderError


def test_a_task_that_prints_100_mb_ends_well_and_costs_little_memory(project):
    before = psutil.Process().memory_info().rss
    result = project.run(
        """
        def job():
            line = "x" * 999
            for _ in range(100_000):
                print(line)
            print("the last line")
            return "done"
        """
    )
    assert result.value == "done"
    file = project.root / ".headrace/runs/run1/job/0/log.txt"
    assert file.stat().st_size > 100_000_000
    assert log_end(file).endswith("the last line")
    assert sum(len(line) for line in project.lines) < 2.2 * 2**20
    assert str(file) in project.lines[-1]
    assert psutil.Process().memory_info().rss - before < 64 * 2**20


def test_a_line_without_an_end_and_a_progress_bar_are_bounded(project):
    project.run(
        """
        import sys

        def job():
            sys.stdout.write("y" * 1_000_000 + "\\n")
            for percent in range(0, 101, 10):
                sys.stdout.write(f"\\r{percent} %")
            print()
        """
    )
    assert max(len(line) for line in project.lines) <= 4096
    assert "100 %" in project.lines


def test_a_receiver_of_lines_that_fails_stops_nothing(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("one\ntwo\n")
    seen = []

    def receive(line):
        seen.append(line)
        raise ConnectionError

    LogTail(file, receive).close()
    assert seen == ["one", "two"]


def test_a_receiver_that_hangs_is_left_behind(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("one\n")
    hanging = threading.Event()
    LogTail(file, lambda line: hanging.wait(60)).close(timeout_s=0.1)
    hanging.set()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 3 MiB, in a mount namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


FILL = """
    import os

    def fill():
        with open("/{folder}/filler", "wb", buffering=0) as handle:
            try:
                while True:
                    handle.write(bytes(65536))
            except OSError:
                pass
            try:
                while True:
                    handle.write(b"0")
            except OSError:
                pass
"""


def source(folder, body):
    return textwrap.dedent(FILL).replace("/{folder}", str(folder)) + textwrap.dedent(body)


def test_a_disk_that_fills_up_during_a_task_still_takes_its_result(project, small_disk):
    project.root = small_disk
    result = project.run(
        source(
            small_disk,
            """
            def job():
                fill()
                return "x" * 60_000
            """,
        )
    )
    assert len(result.value) == 60_000


def test_a_disk_that_is_full_before_the_result_has_room_is_told(project, small_disk):
    project.root = small_disk
    with pytest.raises(DiskFullError, match="no space left") as raised:
        # The room for the result is taken before the task starts: here it is given away again.
        project.run(
            source(
                small_disk,
                """
                import pathlib

                def job():
                    for path in pathlib.Path(".headrace").rglob("result.json.part"):
                        path.unlink()
                    fill()
                """,
            )
        )
    assert str(small_disk) in raised.value.folder


def test_a_disk_that_is_full_from_the_start_is_told(project, small_disk):
    project.root = small_disk
    spec = project.spec("def job(): ...\n")
    with (small_disk / "filler").open("wb", buffering=0) as handle:
        for size in (65536, 1):
            try:
                while True:
                    handle.write(bytes(size))
            except OSError:
                pass
    from headrace.engines.launch import run_attempt

    with pytest.raises((StateFolderError, DiskFullError), match=r"(?i)no space left"):
        run_attempt(spec)
