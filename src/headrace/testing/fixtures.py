"""Fixtures with real engines, started once per test session.

Import them in the `conftest.py` of your tests:
`from headrace.testing.fixtures import delta_table, local_prefect, local_ray, local_spark`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headrace.engines.ray import open_ray
from headrace.engines.ray_environment import ray_environment
from headrace.engines.spark import open_spark
from headrace.profiles.models import RayProfile, SparkProfile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Ray reads these when it is imported, which a test may do long before its cluster starts.
os.environ.update(ray_environment())

SHORT_JOBS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Spark settings for tests: the JVM's second compiler would take more time than it saves."""


@pytest.fixture(scope="session")
def local_spark() -> Iterator[SparkSession]:
    """A Spark session with Delta on two cores, the same for all tests."""
    profile = SparkProfile(name="test", cores=2, memory_mib=1536, spark_conf=SHORT_JOBS)
    with open_spark(profile, app_name="headrace-tests") as session:
        yield session


@pytest.fixture(scope="session")
def local_ray(pytestconfig: pytest.Config) -> Iterator[dict[str, Any]]:
    """A Ray cluster of two CPUs, connected, the same for all tests."""
    profile = RayProfile(name="test", cores=2, memory_mib=1536, object_store_mib=256)
    with open_ray(profile, import_paths=[pytestconfig.rootpath]) as info:
        yield info


@pytest.fixture(scope="session")
def local_prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the API of a Prefect server, the same for all tests; this process uses it."""
    from headrace.orchestration.prefect_api import use_prefect
    from headrace.orchestration.servers import prefect_server

    server = prefect_server(tmp_path_factory.mktemp("prefect"))
    url = server.ensure() + "/api"
    use_prefect(url)
    try:
        yield url
        # Prefect sends its log records from a thread; let them go out before the server does.
        from prefect.logging.handlers import APILogWorker

        APILogWorker.drain_all(timeout=30)
    finally:
        server.stop()


@pytest.fixture
def delta_table(tmp_path: Path) -> Callable[..., str]:
    """A function that writes rows as a small Delta table and tells its path.

    Example:
        `uri = delta_table([{"id": 1}, {"id": 2}], name="numbers")`
    """

    def write(rows: object, *, name: str = "table", mode: str = "overwrite", **options: Any) -> str:
        import pyarrow as pa
        from deltalake import write_deltalake

        data = pa.Table.from_pylist(rows) if isinstance(rows, list) else rows
        path = tmp_path / name
        write_deltalake(str(path), data, mode=mode, **options)
        return str(path)

    return write
