"""Which code runs: the project's git commit, whether its files have changed since, and to what."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.ledger.records import CodeVersion


def code_version(root: Path) -> CodeVersion:
    """The commit that the project is at; no commit outside a repository or without git."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return CodeVersion()
    changes = _git(root, "status", "--porcelain", "--", ".")
    return CodeVersion(commit=commit, dirty=bool(changes))


def code_digest(root: Path, version: CodeVersion) -> str:
    """A text that changes whenever the project's Python files do.

    Args:
        root: The project's root.
        version: What `code_version` says of it now.

    Returns:
        The commit, when nothing has changed since; else a hash of every Python file that is not
        in a hidden folder, in a virtual environment or in a folder of installed packages.
    """
    if version.commit and not version.dirty:
        return version.commit
    digest = hashlib.sha256()
    for path in sorted(_python_files(root)):
        digest.update(str(path.relative_to(root)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _python_files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = [
            name
            for name in names
            if not name.startswith(".")
            and name not in ("__pycache__", "node_modules", "site-packages")
            and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / file for file in files if file.endswith(".py"))


def _git(root: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *command],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def module_file(module: str) -> Path | None:
    """The file of a module, or None when it has none.

    A flow that Prefect's runner sends to a process by value has no file of its own there, while
    the module that it came from can be found.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None and module != "__main__":
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        file = spec.origin if spec is not None else None
    return Path(file).absolute() if file else None
