"""Which code runs: the project's git commit, and whether its files have changed since."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headrace.ledger.records import CodeVersion


def code_version(root: Path) -> CodeVersion:
    """The commit that the project is at; no commit outside a repository or without git."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return CodeVersion()
    changes = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return CodeVersion(commit=commit, dirty=bool(changes))


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
