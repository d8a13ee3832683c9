from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app

LOCAL = """\
[mlflow]
timeout = "1s"

[profiles.etl]
engine = "spark"
memory = "64MiB"

[profiles.tiny]
engine = "python"
memory = "64MiB"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, and the working folder in it."""
    for name in [name for name in os.environ if name.startswith(("HEADRACE_", "PREFECT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    root = tmp_path / "my prøject"
    (root / "infra" / "profiles").mkdir(parents=True)
    (root / "infra" / "profiles" / "local.toml").write_text(LOCAL)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def headrace(project: Path) -> Callable[..., object]:
    """Run a command in this process: `headrace("profiles", "list")`."""
    runner = CliRunner()

    def run(*arguments: str) -> object:
        return runner.invoke(app, list(arguments), prog_name="headrace")

    return run
