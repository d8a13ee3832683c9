"""A repair that would read a table version which is gone is refused before anything runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace import pipeline
from headrace.context import Lineage
from headrace.delta.snapshot import load_snapshot
from headrace.exceptions import ParameterError, ReusedTableGoneError
from headrace.ledger.records import RepairRequest
from headrace.ledger.store import open_ledger
from headrace.orchestration.pinned import check_reused_tables
from headrace.orchestration.project import Project
from headrace.profiles.models import Environment
from tests.ledger.conftest import Driver


@pytest.fixture
def project(tmp_path):
    environment = Environment(name="local", source=tmp_path / "x.toml", root=tmp_path)
    return Project(root=tmp_path, state=tmp_path, environment=environment)


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def table(delta_table):
    return delta_table([{"id": 1}])


@pytest.fixture
def failed(ledger, table):
    """A run whose `read` failed and `write` succeeded; `write` made version 0."""
    use = Lineage(ref=load_snapshot(table, version=0).ref(), mode="overwrite")
    run = Driver(ledger)
    run.did("write", outputs=(use,))
    run.did("read", "failed", depends_on=("write",))
    run.finish("failed")
    return run.id


def check(project, ledger, run_id, *tasks):
    request = RepairRequest(tasks=tasks, with_dependents=bool(tasks))
    check_reused_tables(project, ledger, run_id, ledger.plan_repair(run_id, request))


def vacuum(uri, delta_table):
    delta_table([{"id": 2}])
    DeltaTable(uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_a_version_that_is_there_may_be_read_although_the_table_moved_on(
    project, ledger, failed, delta_table
):
    delta_table([{"id": 2}])
    check(project, ledger, failed)


def test_a_vacuumed_version_is_named_with_its_maker_and_its_reader(
    project, ledger, failed, table, delta_table
):
    vacuum(table, delta_table)
    with pytest.raises(ReusedTableGoneError, match=r"headrace repair .* --task write") as caught:
        check(project, ledger, failed)
    error = caught.value
    assert (error.task, error.maker, error.version) == ("read", "write", 0)
    assert ".parquet is gone" in error.problem
    # What it says to do reads nothing of that version.
    check(project, ledger, failed, "write")


def test_a_table_that_is_gone_as_a_whole_is_named_too(project, ledger, failed, table):
    shutil.rmtree(Path(table))
    with pytest.raises(ReusedTableGoneError, match="No Delta table"):
        check(project, ledger, failed)


def test_tables_that_the_task_did_not_read_are_not_asked_for(project, ledger, table, delta_table):
    made = Lineage(ref=load_snapshot(table, version=0).ref(), mode="overwrite")
    other = delta_table([{"id": 1}], name="other")
    run = Driver(ledger)
    run.did("write", outputs=(made,))
    read = Lineage(ref=load_snapshot(other, version=0).ref(), mode="read")
    run.did("read", "failed", depends_on=("write",), inputs=(read,))
    run.finish("failed")
    vacuum(table, delta_table)
    check(project, ledger, run.id)


def test_a_parameter_that_the_code_no_longer_has_is_left_out_unless_somebody_gives_it(caplog):
    @pipeline
    def nightly(day: str) -> None: ...

    given = {"day": "2013-01-01", "limit": 3}
    assert nightly.check_parameters(given, inherited={"day", "limit"}) == {"day": "2013-01-01"}
    assert "no longer has the parameter 'limit'" in caplog.text
    with pytest.raises(ParameterError, match="limit"):
        nightly.check_parameters(given, inherited={"day"})
