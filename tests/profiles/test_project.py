from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.exceptions import ProjectNotFoundError, StateFolderError
from headrace.profiles.project import find_project, project_address, state_dir


@pytest.fixture
def root(project: Path) -> Path:
    (project / "infra" / "profiles" / "local.toml").touch()
    return project


def test_the_project_is_found_from_any_folder_in_it(root, monkeypatch):
    inner = root / "flows" / "deep"
    inner.mkdir(parents=True)
    assert find_project(inner) == root
    monkeypatch.chdir(inner)
    assert find_project() == root


def test_a_variable_names_the_project(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_PROJECT", str(root))
    assert find_project() == root


def test_a_variable_that_names_no_project_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_PROJECT", str(tmp_path))
    with pytest.raises(
        ProjectNotFoundError, match=r"\(from HEADRACE_PROJECT\) is not a headrace project"
    ):
        find_project()


def test_no_project_says_how_to_make_one(tmp_path):
    with pytest.raises(ProjectNotFoundError, match="Fix: run `headrace init NAME`"):
        find_project(tmp_path)


def test_the_state_folder_is_made_and_hidden_from_git(root):
    assert state_dir(root) == root / ".headrace"
    assert (root / ".headrace" / ".gitignore").read_text() == "*\n"
    assert state_dir(root) == root / ".headrace"


def test_a_variable_moves_the_state_folder(root, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path / "state"))
    assert state_dir(root) == tmp_path / "state"
    assert not (root / ".headrace").exists()


def test_a_state_folder_that_can_not_be_made_says_how_to_move_it(root):
    (root / ".headrace").write_text("in the way")
    with pytest.raises(StateFolderError, match=r"Fix: .*HEADRACE_STATE=/other/folder"):
        state_dir(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_project_says_how_to_move_the_state(root):
    root.chmod(0o555)
    try:
        with pytest.raises(StateFolderError, match="Permission denied"):
            state_dir(root)
    finally:
        root.chmod(0o755)


def test_a_file_system_mounted_read_only_says_how_to_move_the_state():
    # /proc refuses new folders to everybody, root too.
    with pytest.raises(StateFolderError, match="HEADRACE_STATE"):
        state_dir(Path("/proc"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("sqlite:///.headrace/x.db", "sqlite:////p/.headrace/x.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("lake", "/p/lake"),
        ("/abs/lake", "/abs/lake"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("postgresql+psycopg://db/x", "postgresql+psycopg://db/x"),
    ],
)
def test_addresses_are_made_absolute_from_the_root(text, address):
    assert project_address(text, Path("/p")) == address
