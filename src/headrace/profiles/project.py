"""Where the project is, and where it keeps what runs make."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.exceptions import ProjectNotFoundError, StateFolderError

PROFILES = Path("infra") / "profiles"
STATE = ".headrace"


def find_project(start: Path | str | None = None) -> Path:
    """Find the project's root: the nearest folder with `infra/profiles/*.toml`.

    The environment variable HEADRACE_PROJECT names it directly and wins.

    Args:
        start: Folder to search from, upwards; the working folder by default.

    Raises:
        ProjectNotFoundError: Neither `start` nor a folder above it is a project.
    """
    named = os.environ.get("HEADRACE_PROJECT")
    if named and start is None:
        root = Path(named).expanduser().absolute()
        if not is_project(root):
            raise ProjectNotFoundError(start=str(root), variable="HEADRACE_PROJECT")
        return root
    folder = Path(start or Path.cwd()).expanduser().absolute()
    for candidate in (folder, *folder.parents):
        if is_project(candidate):
            return candidate
    raise ProjectNotFoundError(start=str(folder), variable=None)


def is_project(folder: Path) -> bool:
    """Whether the folder holds at least one environment file."""
    return any((folder / PROFILES).glob("*.toml"))


def state_path(root: Path) -> Path:
    """The folder of the project's state: HEADRACE_STATE, else `.headrace` in the root.

    Nothing is created; `state_dir` does that.
    """
    named = os.environ.get("HEADRACE_STATE")
    return Path(named).expanduser().absolute() if named else root / STATE


def state_dir(root: Path) -> Path:
    """Make sure that the state folder exists and can be written.

    It holds the lake, the ledger, MLflow's store and the logs of runs, and tells git to ignore it.

    Raises:
        StateFolderError: The folder can't be made or written.
    """
    folder = state_path(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise StateFolderError(folder=str(folder), reason=error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK):
        raise StateFolderError(folder=str(folder), reason="Permission denied")
    return folder


def project_path(text: str, root: Path) -> Path:
    """Turn a path written in a profile file into an absolute one.

    A relative path starts at the project's root; one below `.headrace` moves with HEADRACE_STATE.
    """
    path = Path(text).expanduser()
    if path.is_absolute():
        return path
    if path.parts and path.parts[0] == STATE:
        return state_path(root).joinpath(*path.parts[1:])
    return root / path


def project_address(text: str, root: Path) -> str:
    """Like `project_path`, for a value that is a path, a `sqlite:///` URL or an address.

    `sqlite:///.headrace/ledger.db` becomes absolute; `s3://...` and `http://...` stay as they are.
    """
    prefix = "sqlite:///"
    if text.startswith(prefix) and not text.startswith(prefix + "/"):
        return prefix + str(project_path(text.removeprefix(prefix), root))
    if "://" in text:
        return text.rstrip("/") if not text.startswith(prefix) else text
    return str(project_path(text, root))
