from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from headrace.cli.machine_checks import hiding_files

LONGEST = 500


@pytest.fixture(scope="module")
def root(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath


def test_no_file_of_the_reference_project_hides_another_module(root):
    assert list(hiding_files(root)) == []


def test_each_task_file_is_named_like_a_function_in_it_or_is_only_imported(root):
    tasks = {path.stem: ast.parse(path.read_text()) for path in root.glob("tasks/*.py")}
    for name, tree in tasks.items():
        decorated = [
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            and any("_task" in ast.unparse(decorator) for decorator in node.decorator_list)
        ]
        assert decorated in ([], [name]), f"tasks/{name}.py defines the tasks {decorated}"


def test_each_flow_file_holds_the_flow_of_its_name_and_no_engine(root):
    for path in root.glob("flows/*.py"):
        tree = ast.parse(path.read_text())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert path.stem == "__init__" or path.stem in functions
        imported = {
            name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
            )
        }
        assert imported.isdisjoint({"ray", "pyspark", "delta", "deltalake", "pandas", "polars"})


def test_no_source_file_is_too_long_to_read(root):
    lengths = {
        path.relative_to(root).as_posix(): len(path.read_text().splitlines())
        for folder in ("src", "flows", "tasks")
        for path in (root / folder).rglob("*.py")
    }
    longest = sorted(lengths, key=lambda name: lengths[name], reverse=True)[:5]
    print("longest:", ", ".join(f"{name} {lengths[name]}" for name in longest))
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_tests_mirror_the_library(root):
    packages = {path.parent.name for path in (root / "src" / "headrace").glob("*/__init__.py")}
    others = {"architecture", "tasks", "flows", "docs", "stack", "examples"}
    folders = {
        path.name
        for path in (root / "tests").iterdir()
        if path.is_dir() and not path.name.startswith(("_", "."))
    }
    assert folders - others <= packages


def test_no_text_names_a_place_that_only_its_author_has(root):
    pattern = re.compile(r"/root/|/home/[a-z]+/")
    for folder in ("src", "flows", "tasks", "infra", "docs", "tests", "benchmarks"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and path.suffix in {".py", ".toml", ".md", ".yaml", ""}:
                if path == Path(__file__):
                    continue
                assert not pattern.search(path.read_text(errors="replace")), path
