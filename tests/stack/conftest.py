"""The running stack, for tests that `make test-stack` and CI run; others skip them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEADRACE = [sys.executable, "-m", "headrace"]
WHICH = os.environ.get("HEADRACE_TEST_STACK", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("stack") and not WHICH:
            item.add_marker(pytest.mark.skip("needs the stack: make up, then make test-stack"))
        elif item.get_closest_marker("long") and WHICH != "all":
            item.add_marker(pytest.mark.skip("runs with make test-stack only"))


class Stack:
    """The stack and a project that uses it."""

    def __init__(self, project: Path) -> None:
        self.project = project
        lines = (ROOT / "infra" / ".env").read_text().splitlines()
        self.env = dict(line.split("=", 1) for line in lines if "=" in line)

    def compose(self, *arguments: str) -> str:
        command = [ROOT / "infra" / "stack", "compose", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def headrace(self, *arguments: str, check: bool = True, timeout_s: float = 600) -> str:
        done = subprocess.run(
            [*HEADRACE, *arguments],
            cwd=self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == 0 or not check, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout + ("" if check else done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*HEADRACE, *arguments],
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE", "PREFECT"))}
        return {
            **kept,
            "HEADRACE_ENV": "compose",
            "HEADRACE_LAKE": f"s3://headrace/{self.project.name}",
        }

    def run(self, number: str = "last") -> dict[str, Any]:
        return json.loads(self.headrace("runs", "show", number, "--json"))

    def jobs(self) -> list[dict[str, Any]]:
        from headrace.engines.job_api import JobApi

        return JobApi(self.env["RAY_ADDRESS"], self.env["RAY_TOKEN"]).jobs()


def wait_until(true: Callable[[], object], what: str, limit_s: float = 240) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(1)


@pytest.fixture(scope="session")
def stack(tmp_path_factory) -> Stack:
    """The sample project in the stack's environment."""
    project = tmp_path_factory.mktemp("stack") / f"sample-{os.getpid()}"
    shutil.copytree(Path(__file__).with_name("sample"), project)
    profiles = project / "infra" / "profiles"
    profiles.mkdir(parents=True)
    shutil.copy(ROOT / "infra" / "profiles" / "compose.toml", profiles)
    (project / "infra" / ".env").symlink_to(ROOT / "infra" / ".env")
    return Stack(project)
