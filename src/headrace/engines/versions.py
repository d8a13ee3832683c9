"""Compare Python and packages here with those of a cluster, before a job starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Final

from headrace.exceptions import VersionMismatchError

# What both sides of a hand-over pickle, serialise or interpret.
RAY_PACKAGES: Final = ("headrace", "ray", "pyarrow", "deltalake", "pydantic", "pandas", "mlflow")
SPARK_PACKAGES: Final = ("pyspark", "pyarrow", "pandas")


def own_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python (`3.11`) and of those packages that are installed here."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def compare_versions(
    here: Mapping[str, str], there: Mapping[str, str], *, cluster: str, needed: Sequence[str] = ()
) -> None:
    """Make sure that two sides agree.

    Args:
        here: Versions by name on this machine.
        there: Those of the cluster.
        cluster: The cluster, for the error's text.
        needed: Names that have to be on the cluster; others count where both have them.

    Raises:
        VersionMismatchError: They don't agree; all differences are named.
    """
    differing = [
        f"{name} is {version} here and {there.get(name, 'missing')} there"
        for name, version in here.items()
        if (name in there or name in needed) and there.get(name) != version
    ]
    if differing:
        raise VersionMismatchError(cluster=cluster, differing=differing)
