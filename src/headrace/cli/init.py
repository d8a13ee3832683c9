"""`headrace init`: a new project from the reference project."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.cli.output import print_line
from headrace.exceptions import TargetFolderError, UserError, lines

app = typer.Typer(help="Make a new project from the reference project.", add_completion=False)

# In the wheel they lie beside the texts below; in a checkout they are the repository's own.
COPIED: Final = (
    "flows",
    "tasks",
    "tests/conftest.py",
    "tests/flows",
    "tests/tasks",
    "infra/profiles",
    "infra/set-up",
    "constraints.txt",
)
FILLED: Final = {
    "Makefile.in": "Makefile",
    "README.md.in": "README.md",
    "gitignore.in": ".gitignore",
    "pyproject.toml.in": "pyproject.toml",
}


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name, or path, of the new folder.")],
) -> None:
    """Make a new project from the reference project: flights from Spark through Delta to Ray.

    Its own `make demo` and `make test` work at once.
    """
    folder = make_project(Path(name))
    print_line(f"Made {folder}", style="bold")
    print_line(
        f"\n  cd {shlex.quote(name)}\n  make demo    # set everything up and run the pipeline"
    )
    print_line("  make test    # pass the tests")


def make_project(folder: Path) -> Path:
    """Copy the reference project to a new folder and give it the folder's name.

    Args:
        folder: The folder to make; one that is there has to be empty.

    Raises:
        UserError: The name can't be a project's.
        TargetFolderError: The folder is not empty or can't be written.
    """
    folder = folder.expanduser().absolute()
    name = project_name(folder.name)
    _make_empty(folder)
    try:
        for path in COPIED:
            _copy(path, folder)
        (folder / "infra" / "set-up").chmod(0o755)
        for source, target in FILLED.items():
            text = (template_folder() / source).read_text(encoding="utf-8")
            filled = text.replace("{{name}}", name).replace("{{source}}", headrace_source())
            (folder / target).write_text(filled, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise TargetFolderError(folder=str(folder), reason=reason) from error
    return folder


def project_name(text: str) -> str:
    """The name that packaging has for a folder's name (PEP 503).

    Raises:
        UserError: Nothing of it is left.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name:
        raise UserError(
            message=lines(
                f"{text!r} can't be the name of a project.",
                "A name has letters or digits from ASCII.",
                "headrace init my-project",
            )
        )
    if name in ("flows", "tasks", "tests", "headrace"):
        raise UserError(
            message=lines(
                f"a project named {name!r} would hide the package of that name.",
                "Python finds the project's folder first.",
                f"headrace init my-{name}",
            )
        )
    return name


def headrace_source() -> str:
    """Where pip gets headrace from: the place that this one was installed from (PEP 610).

    Returns:
        ` @ URL`, or `==VERSION` when it came from a package index.
    """
    distribution = metadata.distribution("headrace")
    text = distribution.read_text("direct_url.json")
    if text is None:
        return f"=={distribution.version}"
    origin = json.loads(text)
    vcs = origin.get("vcs_info")
    return f" @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else f" @ {origin['url']}"


def template_folder() -> Path:
    """The folder with the template's own texts."""
    return Path(__file__).parents[1] / "_template"


def _source(path: str) -> Path:
    packed = template_folder() / path
    return packed if packed.exists() else Path(__file__).parents[3] / path


def _copy(path: str, folder: Path) -> None:
    source, target = _source(path), folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignore)
    elif source.exists():
        shutil.copy(source, target)


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        full = any(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise TargetFolderError(folder=str(folder), reason=reason) from error
    if full:
        raise TargetFolderError(folder=str(folder), reason="it is not empty")
