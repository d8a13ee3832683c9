from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.profiles.load import load_environment
from headrace.profiles.models import Environment


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project whose path has a space and a letter beyond ASCII."""
    root = tmp_path / "my prøject"
    (root / "infra" / "profiles").mkdir(parents=True)
    return root


@pytest.fixture
def load(project: Path) -> Callable[..., Environment]:
    """Write a text as the local environment and load it."""

    def load_text(text: str, **options: object) -> Environment:
        (project / "infra" / "profiles" / "local.toml").write_text(text, encoding="utf-8")
        return load_environment(root=project, **options)

    return load_text
