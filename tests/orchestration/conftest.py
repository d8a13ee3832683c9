"""A sample project at a path with spaces and other letters, and one Prefect server for all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.ledger.store import open_ledger
from headrace.orchestration.prefect_api import use_prefect
from headrace.orchestration.servers import prefect_server

SAMPLE = Path(__file__).parent / "sample"


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = prefect_server(tmp_path_factory.mktemp("prefect"))
    url = server.ensure() + "/api"
    use_prefect(url)
    yield url
    # Prefect sends its log records from a thread; let them go out before the server does.
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=30)
    server.stop()


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
