"""Spark's extra JARs, fetched once into a cache, each checked against its hash."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.engines.cache import cache_folder, lock_file
from headrace.engines.ivy import fetch_with_ivy
from headrace.exceptions import EngineNotInstalledError, JarsUnavailableError

_log = logging.getLogger("headrace.engines")


@dataclass(frozen=True)
class Jar:
    """One pinned file.

    Attributes:
        group: Maven group.
        artifact: Maven artifact.
        version: Its version.
        size: Bytes, which tell a damaged file apart at each start.
        sha256: Hash, checked when the file is fetched.
    """

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


# The rest of what Delta's POM names (its kernel, Unity Catalog) is not touched by Spark's own
# reads and writes, and Spark ships what is left.
DELTA_JARS: Final = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        9_515_916,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        113_863,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


def jars_folder() -> Path:
    """The cache: `HEADRACE_JARS`, or `headrace/jars` in the user's cache folder."""
    text = os.environ.get("HEADRACE_JARS")
    return Path(text).absolute() if text else cache_folder("jars")


def missing_jars(jars: Sequence[Jar] = DELTA_JARS) -> list[Jar]:
    """Which of `jars` the cache lacks, or holds damaged."""
    folder = jars_folder()
    return [jar for jar in jars if not _is_there(jar, folder)]


def jar_paths(jars: Sequence[Jar] = DELTA_JARS, *, timeout_s: float = 600) -> list[Path]:
    """Paths of `jars` in the cache, which is filled first when something is missing.

    Args:
        jars: The files.
        timeout_s: How long fetching may take.

    Raises:
        JarsUnavailableError: The cache lacks a file and it can't be fetched.
    """
    folder = jars_folder()
    if missing_jars(jars):
        _fill(folder, jars, timeout_s)
    return [folder / jar.file_name for jar in jars]


def spark_folder() -> Path:
    """Where the package pyspark lies.

    Raises:
        EngineNotInstalledError: It is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineNotInstalledError(package="pyspark", extra="spark")
    return Path(spec.origin).parent


def _is_there(jar: Jar, folder: Path) -> bool:
    path = folder / jar.file_name
    return path.is_file() and path.stat().st_size == jar.size


def _fill(folder: Path, jars: Sequence[Jar], timeout_s: float) -> None:
    try:
        with lock_file(folder / ".lock"):
            wanted = [jar for jar in jars if not _is_there(jar, folder)]
            if wanted:
                _fetch(folder, wanted, timeout_s)
    except OSError as error:
        raise JarsUnavailableError(
            missing=[str(jar) for jar in jars], cache=str(folder), reason=str(error)
        ) from error


def _fetch(folder: Path, jars: Sequence[Jar], timeout_s: float) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as name:
        drafts = Path(name)
        for jar in jars:
            known = _maven_local(jar)
            if known.is_file() and _sha256(known) == jar.sha256:
                shutil.copyfile(known, drafts / jar.file_name)
        wanted = [jar for jar in jars if not (drafts / jar.file_name).exists()]
        reason = ""
        if wanted:
            size = sum(jar.size for jar in wanted) / 2**20
            _log.info("fetching %d JARs for Spark (%.0f MiB), only this once", len(wanted), size)
            reason = fetch_with_ivy(
                [(jar.group, jar.artifact, jar.version) for jar in wanted],
                drafts,
                spark_jars=spark_folder() / "jars",
                timeout_s=timeout_s,
            )
        for jar in jars:
            _check(jar, drafts / jar.file_name, folder, reason)
        for jar in jars:
            (drafts / jar.file_name).replace(folder / jar.file_name)


def _check(jar: Jar, draft: Path, folder: Path, reason: str) -> None:
    if not draft.is_file():
        raise JarsUnavailableError(missing=[str(jar)], cache=str(folder), reason=reason)
    found = _sha256(draft)
    if found != jar.sha256:
        raise JarsUnavailableError(
            missing=[str(jar)],
            cache=str(folder),
            reason=f"what came has SHA-256 {found}, not {jar.sha256}",
        )


def _maven_local(jar: Jar) -> Path:
    folder = Path.home() / ".m2" / "repository" / jar.group.replace(".", "/")
    return folder / jar.artifact / jar.version / jar.file_name


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


if __name__ == "__main__":
    # `infra/set-up` fills the cache; with `s3` also what Spark needs for tables in an S3 store.
    from headrace.engines.s3_jars import S3_JARS

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    jar_paths((*DELTA_JARS, *(S3_JARS if "s3" in sys.argv[1:] else ())))
