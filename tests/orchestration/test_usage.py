"""What attempts used, in the ledger and in the lake's table, each attempt once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace import read_arrow
from headrace.cli.usage import add_up, parse_since
from headrace.ledger.records import Outcome, RunRequest
from headrace.ledger.store import open_ledger
from headrace.orchestration.project import Project
from headrace.orchestration.usage_table import TABLE, totals, write_usage
from headrace.profiles.models import Environment
from tests.ledger.conftest import Driver

USED = {
    "wall_s": 1800.0,
    "cpu_s": 900.0,
    "peak_memory_mib": 700.0,
    "read_bytes": 10,
    "written_bytes": 20,
    "spark_tasks": 4,
    "cores": 2,
    "memory_mib_reserved": 2048,
    "price_per_hour": 2.0,
}


@pytest.fixture
def project(tmp_path):
    environment = Environment(
        name="local",
        source=tmp_path / "local.toml",
        root=tmp_path,
        lake=str(tmp_path / "lake"),
        ledger_url=f"sqlite:///{tmp_path}/ledger.db",
    )
    return Project(root=tmp_path, state=tmp_path, environment=environment)


@pytest.fixture
def ledger(project):
    with open_ledger(project.environment.ledger_url) as opened:
        yield opened


def run_two_tasks(ledger, **request):
    driver = Driver(ledger, user="ada", **request)
    driver.did("load", usage=USED)
    driver.did("train", "failed", usage={**USED, "wall_s": 3600.0, "peak_memory_mib": 900.0})
    driver.skip("score")
    driver.finish("failed")
    return driver


def in_table(project):
    return read_arrow(f"{project.environment.lake}/{TABLE}").to_pylist()


def test_cost_is_hours_times_the_price_at_that_time(ledger):
    run = run_two_tasks(ledger)
    rows = ledger.usage_rows(run_id=run.id)
    assert [(row.task, row.cost, row.state) for row in rows] == [
        ("load", 1.0, "success"),
        ("train", 2.0, "failed"),
    ]
    found = totals(rows)
    assert (found["cost"], found["cpu_s"], found["peak_memory_mib"]) == (3.0, 1800.0, 900.0)
    assert (found["read_bytes"], found["spark_tasks"]) == (20, 8)


def test_an_attempt_that_was_never_measured_costs_its_time(ledger):
    driver = Driver(ledger)
    attempt = driver.start("t")
    ledger.annotate_attempt(attempt.id, attempt.token, usage={"price_per_hour": 3600.0})
    ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="crashed"))
    [row] = ledger.usage_rows()
    assert row.wall_s == pytest.approx((row.ended_at - row.started_at) / timedelta(seconds=1))
    assert row.cost == pytest.approx(row.wall_s)
    assert row.cpu_s is None


def test_each_attempt_is_in_the_table_once(project, ledger):
    run_two_tasks(ledger)
    assert write_usage(project, ledger) == 2
    assert write_usage(project, ledger) == 0
    other = run_two_tasks(ledger, tags={"team": "air"})
    open_attempt = Driver(ledger)
    open_attempt.start("at work")
    assert write_usage(project, ledger) == 2
    rows = in_table(project)
    assert len({row["attempt_id"] for row in rows}) == len(rows) == 4
    assert [row["cost"] for row in rows if row["run_id"] == other.id] == [1.0, 2.0]
    assert {tuple(row["tags"]) for row in rows} == {(), ("team=air",)}


def test_a_writer_that_died_before_it_had_said_so_doubles_nothing(project, ledger, monkeypatch):
    run_two_tasks(ledger)
    monkeypatch.setattr(type(ledger), "finish_usage", lambda *_: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        write_usage(project, ledger)
    monkeypatch.undo()
    run_two_tasks(ledger)
    write_usage(project, ledger)
    write_usage(project, ledger)
    rows = in_table(project)
    assert len({row["attempt_id"] for row in rows}) == len(rows) == 4


def test_totals_by_pipeline_task_profile_user_and_tag(ledger):
    run_two_tasks(ledger, tags={"team": "air", "trigger": "nightly"})
    ledger.create_run(RunRequest(pipeline="idle", entrypoint="e"))
    rows = ledger.usage_rows()
    [whole] = add_up(rows, "pipeline")
    assert (whole["pipeline"], whole["attempts"], whole["failed"], whole["runs"]) == ("p", 2, 1, 1)
    assert [(total["task"], total["cost"]) for total in add_up(rows, "task")] == [
        ("p.train", 2.0),
        ("p.load", 1.0),
    ]
    assert {total["tag"] for total in add_up(rows, "tag")} == {"team=air", "trigger=nightly"}
    assert [total["user"] for total in add_up(rows, "user")] == ["ada"]
    assert ledger.usage_rows(since=parse_since("1h")) == rows
    assert ledger.usage_rows(since=parse_since("0h")) == []
