"""A write is killed at each of its steps and run again: one copy, no orphan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("kill_writes.py")


@pytest.mark.parametrize("mode", ["append", "overwrite", "merge", "replace_where", "new_table"])
def test_a_write_killed_at_any_step_and_run_again_leaves_one_copy_and_no_orphan(mode, tmp_path):
    done = subprocess.run(
        [sys.executable, str(DRIVER), mode, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["problems"] == []
    assert report["killed"] >= 15
    assert report["killed_after_commit"] >= 1
