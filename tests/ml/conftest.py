"""What tests of `headrace.ml` share: a lake and an MLflow store of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.context import TaskContext, use_context
from headrace.delta.arrow import write_arrow


@pytest.fixture(scope="session")
def ml_store(tmp_path_factory):
    """The address of an MLflow store, made once: that takes seconds."""
    import mlflow

    folder = tmp_path_factory.mktemp("ml-store")
    uri = f"sqlite:///{folder}/mlflow.db"
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("ml", artifact_location=str(folder / "artifacts"))
    mlflow.set_tracking_uri(before)
    return uri


@pytest.fixture
def tracked(ml_store, monkeypatch):
    """MLflow with that store."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(ml_store)
    # `set_experiment` would hold for the tests that come after, too.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ml")
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before)


@pytest.fixture
def lake(tmp_path):
    """A task with an empty lake."""
    with use_context(TaskContext(lake=str(tmp_path / "lake"), cores=2, memory_mib=2048)) as context:
        yield context


def line_rows(slopes: dict[str, float], count: int = 40) -> pa.Table:
    """Rows on a line `y = slope * x` for each carrier, mixed."""
    generator = np.random.default_rng(1)
    carriers = list(slopes) * count
    x = generator.normal(size=len(carriers))
    y = x * np.array([slopes[name] for name in carriers])
    return pa.table({"carrier": carriers, "x": x, "y": y})


@pytest.fixture
def lines(lake):
    """A function that writes such rows as the table `lines`."""

    def write(slopes: dict[str, float], **options):
        return write_arrow(line_rows(slopes, **options), "lines", mode="overwrite", key=())

    return write
