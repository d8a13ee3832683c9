from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from headrace.context import Lineage
from headrace.ledger import schema
from headrace.ledger.base import RUN
from headrace.ledger.firing_records import FiringRequest
from headrace.ledger.records import GOOD, STATES, RunRecord, RunRequest
from headrace.ledger.retention import (
    Keeping,
    RetentionRule,
    load_removals,
    needed_versions,
    plan_removals,
    remove_firings,
    remove_rows,
)
from headrace.tables import TableRef

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RULE = RetentionRule(files_days=10, repair_days=30, rows_days=100)


def run(state="success", days=0.0, run_id="r"):
    ended = None if state in ("queued", "running") else NOW - timedelta(days=days)
    return RunRecord(
        number=1,
        id=run_id,
        pipeline="p",
        entrypoint="e",
        parameters={},
        environment="local",
        user="",
        code={},
        state=state,
        created_at=NOW - timedelta(days=days),
        ended_at=ended,
    )


def removal(record, **keeping):
    return plan_removals([record], now=NOW, rule=RULE, keeping=Keeping(**keeping))[0]


@pytest.mark.parametrize(
    ("state", "days", "files", "rows"),
    [
        ("success", 9, False, False),
        ("success", 11, True, False),
        ("success", 101, True, True),
        ("failed", 11, False, False),
        ("crashed", 29, False, False),
        ("cancelled", 31, True, False),
        ("failed", 101, True, True),
        ("running", 500, False, False),
        ("queued", 500, False, False),
        ("success", -5, False, False),
    ],
)
def test_files_go_by_age_and_a_repair_keeps_what_it_needs(state, days, files, rows):
    decided = removal(run(state, days))
    assert (decided.files, decided.rows) == (files, rows)
    assert decided.why


def test_the_rows_of_a_last_success_of_a_parent_and_of_anything_alive_stay():
    old = run("success", 500)
    assert removal(old).rows
    assert not removal(old, last_successes={"r"}).rows
    assert not removal(old, parents={"r"}).rows
    assert not removal(old, live={"r"}).files


@pytest.mark.parametrize("state", STATES)
def test_rows_never_go_before_files(state):
    for days in range(-10, 400, 7):
        decided = removal(run(state, days))
        assert decided.files or not decided.rows
        if state not in GOOD and days <= RULE.repair_days:
            assert not decided.files


def age(ledger, run_id, days):
    ledger.database.write(
        lambda c: c.execute(
            sa.update(RUN).where(RUN.c.id == run_id).values(ended_at=NOW - timedelta(days=days))
        )
    )


def finished(drive, ledger, days, state="success", **request):
    driver = drive(**request)
    driver.did("load", outputs=(Lineage(ref=_ref(driver.run.number), mode="append"),))
    driver.finish(state)
    age(ledger, driver.id, days)
    return driver


def _ref(version):
    return TableRef(uri="/lake/t", version=version, schema_hash="a")


def test_old_runs_are_removed_and_the_last_success_stays(drive, ledger):
    old = finished(drive, ledger, 300)
    last = finished(drive, ledger, 200)
    broken = finished(drive, ledger, 20, "failed", pipeline="q")
    alive = drive()
    plan = {r.run_id: r for r in load_removals(ledger, now=NOW, rule=RULE)}
    assert set(plan) == {old.id, last.id, broken.id}
    assert plan[old.id].rows
    assert (plan[last.id].files, plan[last.id].rows) == (True, False)
    assert not plan[broken.id].files
    assert remove_rows(ledger, [r.run_id for r in plan.values() if r.rows] + [alive.id]) == 1
    assert {r.id for r in ledger.list_runs()} == {last.id, broken.id, alive.id}
    assert ledger.attempts(old.id) == []
    assert ledger.last_success("p", "load").run_id == last.id


def test_parents_stay_as_long_as_their_children(drive, ledger):
    top = finished(drive, ledger, 300, pipeline="top")
    middle = finished(drive, ledger, 300, pipeline="middle", parent_run_id=top.id)
    finished(drive, ledger, 5, pipeline="child", parent_run_id=middle.id)
    for pipeline in ("top", "middle"):
        finished(drive, ledger, 5, pipeline=pipeline)
    plan = {r.run_id: r for r in load_removals(ledger, now=NOW, rule=RULE)}
    assert not plan[middle.id].rows
    assert not plan[top.id].rows


def test_a_dead_driver_does_not_keep_its_run_for_ever(drive, ledger, fake_time):
    run = drive()
    fake_time.pass_s(46)
    ledger.reap_expired()
    age(ledger, run.id, 31)
    assert [r.files for r in load_removals(ledger, now=NOW, rule=RULE)] == [True]


def test_versions_that_a_repair_reads_are_needed(drive, ledger):
    finished(drive, ledger, 1)
    broken = finished(drive, ledger, 20, "failed")
    finished(drive, ledger, 40, "failed")
    alive = drive()
    alive.did("load", outputs=(Lineage(ref=_ref(99), mode="append"),))
    alive.did("train", "failed", outputs=(Lineage(ref=_ref(100), mode="append"),))
    assert needed_versions(ledger, now=NOW, rule=RULE) == {"/lake/t": {broken.run.number, 99}}


def test_old_decisions_and_notices_go_with_their_runs_and_nothing_fires_again(ledger):
    run = RunRequest(pipeline="p", entrypoint="e")
    record = ledger.register_trigger("p", "t", kind="cron", rule="r", cursor={"at": "0"})
    wanted = [("old", None), ("missed", None), ("with a run", run), ("last", None)]
    for key, made in wanted:
        decided = FiringRequest(key=key, decision="run" if made else "skipped", run=made)
        ledger.fire(record, cursor={"at": key}, firings=[decided])
        record = ledger.find_trigger("p", "t")
        assert ledger.claim_notice(f"{key} told", kind="missed")

    def age_all(days):
        for table in (schema.firing, schema.notice):
            old = sa.update(table).values(created_at=NOW - timedelta(days=days))
            ledger.database.write(lambda c, old=old: c.execute(old))

    def keys():
        return [firing.key for firing in ledger.list_firings("p", "t")][::-1]

    age_all(99)
    assert remove_firings(ledger, now=NOW, rule=RULE) == 0
    age_all(101)
    assert remove_firings(ledger, now=NOW, rule=RULE) == 2
    assert keys() == ["with a run", "last"]
    assert ledger.claim_notice("old told", kind="missed")
    again = [FiringRequest(key="last", run=run)]
    assert ledger.fire(record, cursor={"at": "last"}, firings=again) == []
