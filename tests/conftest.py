"""Fixtures shared by all tests: one Spark session and one Ray cluster per session."""

from __future__ import annotations

import pytest

from headrace.testing.fixtures import delta_table, local_ray, local_spark

__all__ = ["delta_table", "local_ray", "local_spark"]


@pytest.fixture(scope="session")
def spark(local_spark):
    return local_spark


@pytest.fixture(scope="session")
def ray_cluster(local_ray):
    return local_ray
