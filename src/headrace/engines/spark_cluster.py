"""Spark on a cluster: its settings by kind of cluster, its versions, the project's code for it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headrace.engines.code_zip import zip_code
from headrace.engines.versions import SPARK_PACKAGES, compare_versions, own_versions
from headrace.exceptions import VersionMismatchError
from headrace.profiles.models import SparkProfile
from headrace.profiles.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("headrace.engines")

_DRIVER_MIB: Final = 1024
_LEAST_HEAP_MIB: Final = 450


def cluster_settings(
    profile: SparkProfile, address: str, jars: Sequence[Path] = ()
) -> dict[str, str]:
    """Settings of a session whose driver runs here and whose work a cluster does.

    Args:
        profile: Cores, memory and workers of the whole task, without its driver.
        address: The cluster's master.
        jars: Files that the workers need on top of their own.
    """
    memory_mib = profile.memory_mib_per_worker
    heap_mib = max(_LEAST_HEAP_MIB, memory_mib * 3 // 4)
    host = own_address(address)
    settings = {
        "spark.master": address,
        "spark.driver.memory": f"{_DRIVER_MIB}m",
        "spark.driver.host": profile.driver_host or host,
        "spark.driver.bindAddress": "0.0.0.0" if profile.driver_host else host,  # noqa: S104
        "spark.executor.cores": str(profile.cores_per_worker),
        "spark.executor.memory": f"{heap_mib}m",
        "spark.executor.memoryOverhead": f"{max(64, memory_mib - heap_mib)}m",
        "spark.executor.instances": str(profile.workers),
        "spark.cores.max": str(profile.cores),
        # Workers get the driver's own files, so that both have the same Delta.
        "spark.jars": ",".join(str(path) for path in jars),
        # A worker that is gone is noticed while somebody still waits for it.
        "spark.network.timeout": "120s",
        "spark.sql.shuffle.partitions": str(max(2, 2 * profile.cores)),
    }
    return settings | _scaling(profile) | _kind(profile, address)


def _scaling(profile: SparkProfile) -> dict[str, str]:
    """Bounds between which the number of workers follows the work."""
    if profile.min_workers is None and profile.max_workers is None:
        return {}
    most = profile.max_workers or profile.workers
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(profile.min_workers or profile.workers),
        "spark.dynamicAllocation.initialExecutors": str(profile.workers),
        "spark.dynamicAllocation.maxExecutors": str(most),
        "spark.cores.max": str(profile.cores_per_worker * most),
    }


def _kind(profile: SparkProfile, address: str) -> dict[str, str]:
    place = place_of("spark", address)
    settings: dict[str, str] = {}
    played = re.fullmatch(r"local-cluster\[\d+,\s*(\d+),\s*(\d+)\]", address)
    if played:
        settings |= {"spark.executor.cores": played[1], "spark.executor.memory": f"{played[2]}m"}
    if place == "kubernetes":
        if profile.image:
            settings["spark.kubernetes.container.image"] = profile.image
        for name, value in profile.node_labels.items():
            settings[f"spark.kubernetes.node.selector.{name}"] = value
    elif place == "yarn" and profile.node_labels:
        settings["spark.yarn.executor.nodeLabelExpression"] = ",".join(profile.node_labels)
    if profile.gpus:
        settings["spark.executor.resource.gpu.amount"] = str(
            max(1, round(profile.gpus / profile.workers))
        )
    if profile.spot:
        # What a node that is taken away has cached or shuffled moves to others first.
        names = ("decommission", "storage.decommission", "storage.decommission.shuffleBlocks")
        settings |= {f"spark.{name}.enabled": "true" for name in names}
    return settings


def own_address(cluster: str) -> str:
    """This machine's address on the way to a cluster; 127.0.0.1 where none is known."""
    parts = urlsplit(cluster.removeprefix("k8s://"))
    if parts.hostname is None:
        return "127.0.0.1" if cluster.startswith("local") else socket.gethostname()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the system only chooses the way.
            probe.connect((parts.hostname, parts.port or 7077))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def prepare_cluster(session: SparkSession, root: Path | None) -> None:
    """Compare a cluster's versions with those here, and give its workers the project's code.

    Raises:
        VersionMismatchError: They don't agree.
    """
    here = own_versions(SPARK_PACKAGES)
    compare_versions({"pyspark": here["pyspark"]}, {"pyspark": session.version}, cluster="Spark")
    compare_versions(here, _worker_versions(session), cluster="Spark's workers")
    if root is not None and _keeps_code_apart(session):
        folder = Path(tempfile.mkdtemp(prefix="headrace-code-"))
        digest = zip_code(root, folder / "project.zip")
        # A name of its own for each content: sessions of one server share their workers' files.
        archive = (folder / "project.zip").rename(folder / f"project-{digest[:16]}.zip")
        session.addArtifacts(str(archive), pyfile=True)
        shutil.rmtree(folder, ignore_errors=True)


def _keeps_code_apart(session: SparkSession) -> bool:
    """Whether code that a session brings stays its own; a classic session is alone anyway."""
    if not type(session).__module__.startswith("pyspark.sql.connect"):
        return True
    if session.conf.get("spark.sql.artifact.isolation.enabled", "false") == "true":
        return True
    _log.warning(
        "the Spark Connect server shares code among its sessions, so its workers don't get this "
        "project's: start it with spark.sql.artifact.isolation.enabled=true"
    )
    return False


def _worker_versions(session: SparkSession) -> dict[str, str]:
    """Versions as a worker has them."""
    packages = SPARK_PACKAGES

    # Inside this function, it is sent as code: workers need not have headrace.
    def tell(batches: Iterator[Any]) -> Iterator[Any]:
        import json as json_there
        import sys
        from importlib import metadata

        import pyarrow as pa

        found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
        for package in packages:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [json_there.dumps(found)]})

    try:
        row = session.range(0, 1, 1, 1).mapInArrow(tell, "found string").first()
    except Exception as error:
        # PySpark itself refuses another minor version of Python, with both in its text.
        if "PYTHON_VERSION_MISMATCH" not in str(error):
            raise
        told = next(line for line in str(error).splitlines() if "PYTHON_VERSION" in line)
        raise VersionMismatchError(cluster="Spark's workers", differing=[told.strip()]) from error
    return dict(json.loads(row["found"])) if row else {}
