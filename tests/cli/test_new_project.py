"""A project made by `headrace init` works by its own two commands."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.cli.init import make_project

pytestmark = [pytest.mark.demo, pytest.mark.spark, pytest.mark.ray, pytest.mark.prefect]


@pytest.fixture(scope="module")
def new_project(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A new project whose `.venv` borrows the packages of the one that runs this test."""
    if not (pytestconfig.rootpath / "flows" / "train_delays.py").exists():
        pytest.skip("there is no reference flow")
    root = make_project(tmp_path_factory.mktemp("new") / "my prøject")
    venv.create(root / ".venv", symlinks=True)
    found = sysconfig.get_paths(vars={"base": str(root / ".venv"), "platbase": str(root / ".venv")})
    # A path line alone would not follow the .pth file of an editable installation.
    borrowed = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(found["purelib"]) / "borrowed.pth").write_text(borrowed)
    script = root / ".venv" / "bin" / "headrace"
    script.write_text(
        '#!/bin/sh\nexec "$(dirname "$0")/python" -c \'from headrace.cli.app import main; main()\' "$@"\n'
    )
    script.chmod(0o755)
    # infra/set-up takes a newer stamp for a finished installation.
    (root / ".venv" / "ready").touch()
    return root


def _make(root: Path, target: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADRACE_", "PREFECT_", "MLFLOW_", "PYTEST_"))
    }
    return subprocess.run(
        ["make", "-C", str(root), target],
        env={**clean, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_make_demo_of_a_new_project_passes(new_project):
    try:
        done = _make(new_project, "demo")
        assert done.returncode == 0, done.stdout[-4000:]
        predictions = DeltaTable(new_project / ".headrace" / "lake" / "predictions")
        assert predictions.version() >= 0
    finally:
        _make(new_project, "down")


def test_make_test_of_a_new_project_passes(new_project):
    """What starts an engine is left out: the same tests and the same flow run in this session."""
    only = "-m 'not demo and not spark and not ray' -p no:cacheprovider"
    done = _make(new_project, "test", PYTEST_ADDOPTS=only)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
