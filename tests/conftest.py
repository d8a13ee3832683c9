"""Fixtures shared by all tests: one Spark session, one Ray cluster, one Prefect server."""

from __future__ import annotations

import pytest

from headrace.testing.fixtures import delta_table, local_prefect, local_ray, local_spark

__all__ = ["delta_table", "local_prefect", "local_ray", "local_spark"]


@pytest.fixture(scope="session")
def spark(local_spark):
    return local_spark


@pytest.fixture(scope="session")
def prefect_url(local_prefect):
    return local_prefect


@pytest.fixture(scope="session")
def ray_cluster(local_ray):
    return local_ray


ORDER = ("prefect", "spark", "ray", "demo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pure tests first, then those of each engine together: a quick answer comes quickly."""

    def place(item: pytest.Item) -> int:
        marks = [number for number, name in enumerate(ORDER, 1) if item.get_closest_marker(name)]
        return max(marks, default=0)

    items.sort(key=place)
