from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from headrace import __version__
from headrace.cli import app as app_module
from headrace.cli.app import COMMANDS, Lazy
from headrace.exceptions import DataError, EngineError, HeadraceError, UserError


@pytest.fixture
def failing(monkeypatch):
    """Register a command `fail` that raises what the test wants."""

    def register(error: BaseException) -> None:
        command = typer.Typer()

        @command.command()
        def fail() -> None:
            raise error

        monkeypatch.setitem(COMMANDS, "fail", Lazy("headrace.cli.app", "Fail.", "Look", "fail_app"))
        monkeypatch.setattr(app_module, "fail_app", command, raising=False)

    return register


def test_help_lists_every_command_with_its_line(headrace):
    result = headrace("--help")
    assert result.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert lazy.help in result.stdout
    assert "--install-completion" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_explains_itself(headrace, name):
    result = headrace(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage: headrace" in result.stdout


def test_version_prints_the_version(headrace):
    assert headrace("--version").stdout == f"headrace {__version__}\n"


def test_an_unknown_command_names_the_closest_one(headrace):
    result = headrace("prfiles")
    assert result.exit_code == 2
    assert "Did you mean 'profiles'?" in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError(message="what.\nfound.\nFix: this"), 2),
        (DataError(message="what.\nfound.\nFix: this"), 2),
        (EngineError(message="what.\nfound.\nFix: this"), 3),
        (HeadraceError(message="what.\nfound.\nFix: this"), 1),
    ],
)
def test_an_error_is_its_three_lines_and_an_exit_code(headrace, failing, error, code):
    failing(error)
    result = headrace("fail")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{type(error).__name__}: what.",
        "found.",
        "Fix: this",
    ]


@pytest.mark.parametrize("arguments", [("--debug", "fail"), ("fail", "--debug")])
def test_debug_shows_the_traceback_wherever_it_stands(headrace, failing, monkeypatch, arguments):
    monkeypatch.setenv("HEADRACE_DEBUG", "0")
    failing(UserError(message="what."))
    result = headrace(*arguments)
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "UserError: what." in result.stderr


def test_an_interrupt_ends_with_130(headrace, failing):
    failing(KeyboardInterrupt())
    result = headrace("fail")
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr


def test_the_installed_command_speaks_to_a_pipe_that_closes_early(project):
    done = subprocess.run(
        f"{sys.executable} -c 'from headrace.cli.app import main; main()' profiles show etl | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "Profile etl\n"
    assert done.stderr == ""


def test_help_loads_no_engine_no_model_and_no_rich_page(project):
    code = (
        "import sys\n"
        "from headrace.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'ray', 'pyspark', 'mlflow', 'prefect', 'pandas', 'pyarrow', 'pydantic', 'sqlalchemy'}\n"
        "print(sorted(heavy & set(sys.modules)), 'rich.markdown' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] False"


def test_the_shell_completes_commands_and_names(project):
    done = subprocess.run(
        [sys.executable, "-c", "from headrace.cli.app import main; main()"],
        env={
            **os.environ,
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": "headrace profiles show e",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["etl"]
