"""A sample project at a path with spaces and other letters."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from headrace.ledger.store import open_ledger
from tests.conftest import command_line

SAMPLE = Path(__file__).parent / "sample"


def command_lines(pid: int) -> list[str]:
    """Those of all processes below one."""
    return [command_line(child) for child in psutil.Process(pid).children(recursive=True)]


@pytest.fixture(scope="session")
def sample_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("projects") / "Flüge über New York"
    shutil.copytree(SAMPLE, root)
    sys.path[:0] = [str(root), str(root / "flows")]
    return root


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes.txt"
    monkeypatch.setenv("SAMPLE_NOTES", str(path))
    return path


@pytest.fixture
def project(
    sample_root: Path, notes: Path, prefect_url: str, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The sample project, ready to run; its state is shared by all tests."""
    monkeypatch.setenv("HEADRACE_PROJECT", str(sample_root))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(sample_root), str(sample_root / "flows")])
    )
    return sample_root


@pytest.fixture
def flows(project: Path):
    import sample_flows

    return sample_flows


@pytest.fixture
def ledger(project: Path):
    with open_ledger(f"sqlite:///{project / '.headrace' / 'ledger.db'}") as ledger:
        yield ledger


@pytest.fixture
def ran(notes: Path):
    """Which tasks have run since the last look."""

    def look() -> list[str]:
        lines = notes.read_text().splitlines() if notes.exists() else []
        notes.write_text("")
        return sorted(lines)

    return look
