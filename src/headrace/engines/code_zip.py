"""The project's code as one archive, for clusters that can't see this machine's files."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.exceptions import CodeTooLargeError

LARGEST_MIB: Final = 50
# A fixed date: the same code gives the same archive, which a cluster has already.
_DATE: Final = (2026, 1, 1, 0, 0, 0)
_LEFT_OUT: Final = {"__pycache__", "node_modules", "build", "dist"}


def zip_code(root: Path, target: Path) -> str:
    """Write the files of a project into an archive.

    With git it is what git knows or would add; else all but hidden files and build results. A
    secret that git ignores stays here.

    Args:
        root: The project's root.
        target: The archive to write.

    Returns:
        A digest of the content.

    Raises:
        CodeTooLargeError: The files have more than 50 MiB.
    """
    files = sorted(_files(root))
    sizes = {path: path.stat().st_size for path in files}
    if sum(sizes.values()) > LARGEST_MIB * 2**20:
        largest = max(sizes, key=lambda path: sizes[path])
        raise CodeTooLargeError(
            root=str(root),
            size_mib=sum(sizes.values()) // 2**20,
            limit_mib=LARGEST_MIB,
            largest=str(largest.relative_to(root)),
        )
    digest = hashlib.sha256()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name, content = path.relative_to(root).as_posix(), path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    listed = _known_to_git(root)
    for path in listed if listed is not None else root.rglob("*"):
        inside = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part in _LEFT_OUT for part in inside)
        if not hidden and path.is_file():
            yield path


def _known_to_git(root: Path) -> list[Path] | None:
    """Files that are in git or not ignored by it; None where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
    try:
        done = subprocess.run(
            [*command, "--exclude-standard", "."], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = done.stdout.decode(errors="surrogateescape").split("\0")
    return [root / name for name in names if name] if done.returncode == 0 else None
