from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib import metadata

import pytest

from headrace.cli.init import headrace_source, project_name
from headrace.profiles.load import load_environment
from headrace.profiles.project import find_project


def test_a_new_project_has_all_that_make_needs(headrace, tmp_path):
    result = headrace("init", str(tmp_path / "delays today"))
    root = tmp_path / "delays today"
    assert result.exit_code == 0
    assert f"cd '{root}'" in result.stdout
    for name in ("flows", "tasks", "tests", "infra/set-up", "Makefile", "README.md", ".gitignore", "constraints.txt"):  # fmt: skip
        assert (root / name).exists(), name
    assert os.access(root / "infra" / "set-up", os.X_OK)
    assert not list(root.rglob("__pycache__"))
    assert find_project(root / "tasks") == root
    assert load_environment(root=root).profiles
    texts = [path.read_text() for path in root.rglob("*") if path.is_file()]
    assert not any(re.search(r"{{\w+}}", text) for text in texts)


def test_its_pyproject_asks_for_the_headrace_that_made_it(headrace, tmp_path):
    headrace("init", str(tmp_path / "Delays_2"))
    project = tomllib.loads((tmp_path / "Delays_2" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "delays-2"
    assert project["project"]["dependencies"] == [f"headrace[all]{headrace_source()}"]
    assert {"all", "dev", "java"} <= project["project"]["optional-dependencies"].keys()


def test_its_makefile_lists_its_targets(headrace, tmp_path):
    headrace("init", str(tmp_path / "delays"))
    done = subprocess.run(
        ["make", "-C", str(tmp_path / "delays")], capture_output=True, text=True, check=True
    )
    assert "make demo" in done.stdout
    assert "make test" in done.stdout


def test_a_folder_that_is_not_empty_is_left_alone(headrace, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "Makefile").write_text("mine")
    result = headrace("init", str(tmp_path / "mine"))
    assert result.exit_code == 2
    assert "it is not empty" in result.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["Makefile"]


def test_a_place_where_nothing_can_be_made_says_so(headrace, tmp_path):
    (tmp_path / "file").touch()
    result = headrace("init", str(tmp_path / "file" / "delays"))
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr


@pytest.mark.parametrize(
    ("text", "name"), [("My Project", "my-project"), ("a__b..c", "a-b-c"), ("prøject", "pr-ject")]
)
def test_a_folders_name_becomes_a_packages_name(text, name):
    assert project_name(text) == name


@pytest.mark.parametrize("name", ["ø", "--", "tasks", "headrace"])
def test_a_name_that_can_not_be_a_project_is_refused(headrace, tmp_path, name):
    result = headrace("init", str(tmp_path / name))
    assert result.exit_code == 2
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, f"=={metadata.version('headrace')}"),
        ('{"url": "file:///a%20b/x.whl", "archive_info": {}}', " @ file:///a%20b/x.whl"),
        ('{"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}', " @ git+https://x/y.git@abc"),
    ],
)  # fmt: skip
def test_headrace_comes_from_where_it_was_installed_from(monkeypatch, origin, source):
    monkeypatch.setattr(metadata.Distribution, "read_text", lambda *_: origin)
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda *_: origin)
    monkeypatch.setattr(
        metadata.Distribution,
        "version",
        property(lambda _: source.removeprefix("==")),
        raising=False,
    )
    assert headrace_source() == source
