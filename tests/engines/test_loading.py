from __future__ import annotations

import pytest

from headrace.exceptions import TaskFailedError, TaskImportError


def test_a_script_is_imported_by_its_name_and_its_main_block_does_not_run(project):
    result = project.run(
        """
        def job():
            return __name__

        if __name__ == "__main__":
            raise SystemExit("the main block ran")
        """,
        file="flows/nightly.py",
        module="__main__",
    )
    assert result.value == "flows.nightly"


def test_a_file_outside_of_any_package_is_loaded_by_its_path(project):
    result = project.run("def job(): return __name__\n", file="my-flow.py", module="__main__")
    assert result.value == "headrace_task_my-flow"


def test_a_flow_file_named_like_a_dependency_hides_nothing(project):
    result = project.run(
        """
        def job():
            import yaml
            return [__name__, yaml.safe_load("a: 1")]
        """,
        file="flows/yaml.py",
    )
    assert result.value == ["flows.yaml", {"a": 1}]


def test_even_a_file_in_the_root_named_like_a_dependency_hides_nothing(project):
    result = project.run(
        """
        def job():
            import pydantic
            return pydantic.BaseModel.__name__
        """,
        file="pydantic.py",
    )
    assert result.value == "BaseModel"


def test_a_project_package_wins_over_an_installed_one_of_that_name(project):
    (project.root / "yaml").mkdir()
    (project.root / "yaml" / "__init__.py").touch()
    (project.root / "yaml" / "help.py").write_text("WORD = 'mine'\n")
    result = project.run(
        "from yaml.help import WORD\ndef job(): return WORD\n", file="yaml/steps.py"
    )
    assert result.value == "mine"


def test_modules_of_the_project_can_be_imported_by_child_processes_too(project):
    (project.root / "tasks").mkdir()
    (project.root / "tasks" / "shared.py").write_text("WORD = 'found'\n")
    result = project.run(
        """
        import subprocess, sys

        def job():
            code = "from tasks.shared import WORD; print(WORD)"
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  cwd="/").stdout
        """
    )
    assert result.value == "found\n"


def test_a_missing_function_or_file_is_told(project):
    with pytest.raises(TaskImportError, match="no 'job' at its top level"):
        project.run("def other(): ...\n")
    spec = project.spec("def job(): ...\n")
    spec.function.file.unlink()
    from headrace.engines.launch import run_attempt

    with pytest.raises(TaskImportError, match="no such file"):
        run_attempt(spec)


def test_an_error_in_the_module_itself_is_the_users_error(project):
    with pytest.raises(TaskFailedError, match=r"ModuleNotFoundError: No module named 'no_such'"):
        project.run("import no_such\ndef job(): ...\n")
