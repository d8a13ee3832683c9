"""A project of its own for the examples, so that nothing they write lands in the repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def example_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the repository's profiles, and a lake that the examples share."""
    root = tmp_path_factory.mktemp("examples")
    shutil.copytree(ROOT / "infra" / "profiles", root / "infra" / "profiles")
    return root


@pytest.fixture
def inside_project(example_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is that project, without settings from outside."""
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(example_project)
    return example_project
