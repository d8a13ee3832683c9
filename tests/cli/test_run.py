"""`headrace run`, `runs`, `repair` and `gc` from the outside: what they print and how they exit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[1] / "orchestration" / "sample"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("run") / "a project"
    shutil.copytree(SAMPLE, root)
    (root / "flows" / "wrong_flows.py").write_text("x = 1\nif x\n")
    (root / "flows" / "broken_flows.py").write_text("import no_such_module\n")
    return root


@pytest.fixture(scope="module")
def headrace(project: Path):
    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "SAMPLE_NOTES": str(project / "notes.txt"),
            "HEADRACE_PROJECT": "",
            "COLUMNS": "200",
            **env,
        }
        return subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return call


@pytest.mark.prefect
def test_a_run_a_failure_and_its_repair_from_the_command_line(headrace, project, prefect_url):
    done = headrace("run", "add_up", "--param", "count=5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "add_up: run" in done.stdout
    assert "total (other): success" in done.stdout

    failed = headrace("run", "flows.sample_flows.add_up", "-p", "limit=1", "-v")
    assert failed.returncode == 1
    assert "numbers | counting to 4" in failed.stdout
    assert "ValueError: 6.0 is more than 1" in failed.stderr
    assert "headrace repair" in failed.stdout

    shown = json.loads(headrace("runs", "show", "--json").stdout)
    states = {a["task"]: a["state"] for a in shown["attempts"]}
    assert states == {"numbers": "success", "total": "success", "at_most": "failed"}
    assert "token" not in json.dumps(shown)

    plan = headrace("repair", "--dry-run")
    assert plan.returncode == 0
    assert "at_most" in plan.stdout
    assert "reuse" in plan.stdout

    (project / "notes.txt").unlink()
    repaired = headrace("repair", "-p", "limit=10")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert (project / "notes.txt").read_text() == "at_most\n"

    again = headrace("repair")
    assert again.returncode == 2
    assert "nothing to repair" in again.stderr

    listed = json.loads(headrace("runs", "list", "--json").stdout)
    assert [run["state"] for run in listed] == ["success", "success"]
    graph = headrace("runs", "show").stdout
    assert "reused by repair 1" in graph
    assert "after total" in graph
    assert "counting to 4" in headrace("runs", "logs", "last", "numbers").stdout
    first, second = (run["id"] for run in listed)
    difference = json.loads(headrace("runs", "diff", second, first, "--json").stdout)
    assert difference["parameter count"] == {"first": "5", "second": "4"}

    kept = headrace("gc", "--dry-run", "--files-days", "0", "--json")
    assert len(json.loads(kept.stdout)["removals"]) == 2
    assert headrace("gc", "--files-days", "0", "--repair-days", "0").returncode == 0
    assert not list((project / ".headrace" / "runs").iterdir())


@pytest.mark.prefect
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "ad_up"], "headrace run flows.sample_flows.add_up"),
        (["run", "flows.sample_flows.nothing"], "no nothing"),
        (["run", "flows.broken_flows.x"], "pip install no_such_module"),
        (["run", "flows.wrong_flows.x"], "wrong_flows.py:2"),
        (["run", "add_up", "-p", "cuont=3"], "use count"),
        (["run", "add_up", "-p", "count=three"], "wrong type"),
        (["run", "add_up", "--profile", "total=smal"], "small"),
        (["run", "add_up", "--profile", "totl=small"], "use total"),
        (["run", "add_up", "--env", "lokal"], "local"),
    ],
)
def test_wrong_input_is_named_with_what_to_do(headrace, prefect_url, words, text):
    done = headrace(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert text in done.stderr
    assert "Fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_runs_and_tasks_are_named(headrace):
    assert headrace("runs", "show", "991231").returncode == 2
    wrong = headrace("runs", "logs", "last", "nothing")
    assert wrong.returncode == 2
    assert "Fix:" in wrong.stderr
