"""The reference pages name what the code has: commands, options, keys, variables, errors."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import headrace
from headrace import exceptions
from headrace.cli.app import COMMANDS
from headrace.profiles.check import toml_keys
from headrace.profiles.models import PROFILE_TYPES, MlflowSettings, PrefectSettings
from headrace.profiles.overrides import VARIABLES
from headrace.profiles.storage import Storage

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
# Part of every command, told once at the top of the page.
COMMON = {"--help", "--install-completion", "--show-completion"}


def commands() -> Iterator[tuple[str, Any]]:
    for name, lazy in COMMANDS.items():
        command = typer.main.get_command(getattr(importlib.import_module(lazy.module), lazy.app))
        children = getattr(command, "commands", None)
        for child, inner in (children or {"": command}).items():
            yield f"{name} {child}".strip(), inner


def told_about(path: str) -> str:
    """What cli.md says about a command: its row, or its section."""
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(rf"\| `headrace {path}[ `]", line)]
    if rows:
        return rows[0]
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    return next((text for text in sections if re.match(rf"headrace {path}\b", text)), "")


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_option_of_a_command_is_documented(path: str, command: Any) -> None:
    text = told_about(path)
    assert text, f"docs/reference/cli.md says nothing about `headrace {path}`"
    options = {
        flag for param in command.params for flag in param.opts if flag.startswith("--")
    } - COMMON
    missing = {flag for flag in options if f"`{flag}" not in text and f" {flag}`" not in text}
    assert not missing, f"cli.md on `headrace {path}` lacks {sorted(missing)}"


def test_every_key_of_a_profile_file_is_documented() -> None:
    page = (REFERENCE / "profiles.md").read_text(encoding="utf-8")
    models = [*PROFILE_TYPES.values(), MlflowSettings, PrefectSettings, Storage]
    keys = {key for model in models for key in toml_keys(model, hidden={"name", "expires_at"})}
    assert not {key for key in keys if f"`{key}`" not in page}


def test_every_variable_is_documented() -> None:
    page = (REFERENCE / "environment-variables.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    read = {
        name
        for text in sources
        for name in re.findall(r"(?:environ(?:\.get)?[\[(]|= )\"(HEADRACE_[A-Z_]+)\"", text)
    }
    assert read >= {"HEADRACE_ENV", "HEADRACE_STATE", "HEADRACE_DEBUG"}
    assert not {name for name in {*read, *VARIABLES} if f"`{name}`" not in page}


def test_every_error_is_documented_and_every_documented_error_exists() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    known = {
        name
        for name, value in inspect.getmembers(exceptions, inspect.isclass)
        if issubclass(value, exceptions.HeadraceError)
    }
    assert set(re.findall(r"`(\w+Error)`", page)) == known


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_public_name_is_in_the_api_page_with_its_parameters(name: str) -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert name in page
    told = re.search(rf"^{name}\((.*?)\)(?: ->|$)", page, re.MULTILINE)
    if told is not None:
        parameters = list(inspect.signature(getattr(headrace, name)).parameters)
        assert re.findall(r"(?:^|, )(?:\*, )?\*?(\w+)(?==|,|$)", told[1]) == parameters


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken
