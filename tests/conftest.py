"""Fixtures shared by all tests: one Spark session, one Ray cluster, one Prefect server."""

from __future__ import annotations

import contextlib
import csv
import random
from pathlib import Path

import psutil
import pytest

from headrace.testing.fixtures import delta_table, local_prefect, local_ray, local_spark

__all__ = ["delta_table", "local_prefect", "local_ray", "local_spark"]


def command_line(process: psutil.Process) -> str:
    """That of a process; one that has just ended has none."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


# Compiling the code of a query takes longer than it runs over the few rows of a test.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(local_spark):
    for name, value in INTERPRETED.items():
        local_spark.conf.set(name, value)
    return local_spark


@pytest.fixture(scope="session")
def prefect_url(local_prefect):
    return local_prefect


@pytest.fixture(scope="session")
def ray_cluster(local_ray):
    return local_ray


DAYS, ORIGIN, CARRIERS = {"5", "20"}, "LGA", {"DL", "MQ"}


def _wanted(name: str, row: dict[str, str]) -> bool:
    if name == "flights":
        return row["day"] in DAYS and row["origin"] == ORIGIN and row["carrier"] in CARRIERS
    return name != "weather" or (row["origin"] == ORIGIN and row["day"] in DAYS)


@pytest.fixture(scope="session")
def flight_csv(tmp_path_factory) -> Path:
    """A folder with about 3,000 real flights of 24 days."""
    from tasks.flight_data import open_flight_files
    from tasks.flight_schemas import CSV_TABLES

    folder = tmp_path_factory.mktemp("csv")
    with open_flight_files(None, CSV_TABLES) as files:
        for name, path in files.items():
            with path.open(newline="") as source, (folder / f"{name}.csv").open("w") as target:
                rows = csv.DictReader(source)
                writer = csv.DictWriter(target, rows.fieldnames, lineterminator="\n")
                writer.writeheader()
                writer.writerows(row for row in rows if _wanted(name, row))
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--generated", type=int, default=0, help="how many tables to make up")
    parser.addoption("--fault-seed", type=int, help="replay the random moments of a fault test")
    parser.addoption("--fault-rounds", type=int, default=0, help="how many rounds of all faults")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.fault_seed is None:
        config.option.fault_seed = random.SystemRandom().randrange(10**6)


def pytest_report_header(config: pytest.Config) -> str:
    return f"random faults: --fault-seed={config.option.fault_seed}"


ORDER = ("prefect", "spark", "ray", "demo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pure tests first, then those of each engine together: a quick answer comes quickly."""

    def place(item: pytest.Item) -> int:
        marks = [number for number, name in enumerate(ORDER, 1) if item.get_closest_marker(name)]
        return max(marks, default=0)

    items.sort(key=place)
