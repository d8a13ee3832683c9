"""What the loop records, with a clock that the test moves."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace import continuous, cron, interval, on_files, on_pipeline, on_table
from headrace.ledger.firing_records import FiringRequest
from headrace.ledger.records import RunRequest
from headrace.ledger.store import open_ledger
from headrace.orchestration.triggers import watchers
from tests.orchestration.triggers.conftest import World, served

HOURLY = cron("0 * * * *", name="hourly", parameters={"time": "{{ trigger.time }}"})


def rows(count=1):
    return pa.table({"x": list(range(count))})


def test_each_hour_has_one_run_with_its_time(world):
    serving = world.serve(served(HOURLY))
    for _ in range(24 * 6):
        serving.turn()
        world.pass_s(600)
    times = [run.parameters["time"] for run in world.runs()]
    assert times == [f"2024-01-01T{hour:02}:00:00Z" for hour in range(1, 24)]
    assert {run.trigger_key for run in world.runs()} == {f"hourly:{time}" for time in times}
    assert all(run.state == "success" for run in world.runs())


def test_twenty_redeploys_in_mid_tick_give_one_run_per_time(world):
    for _ in range(20 * 3):
        world.serve(served(HOURLY)).turn()  # each is a new process to the ledger
        world.serve(served(HOURLY)).turn()
        world.pass_s(180)
    assert [run.parameters["time"][11:13] for run in world.runs()] == ["01", "02"]


def test_two_servers_at_once_give_one_run_per_time(tmp_path, url):
    world = World(tmp_path, url)
    with open_ledger(url) as other:
        servers = [world.serve(served(HOURLY)), world.serve(served(HOURLY), ledger=other)]
        for server in servers:
            server.starter = type(world.hands)(server.around.ledger)
        for server in servers:
            server.turn()
        for _ in range(10):
            world.pass_s(3600)
            at_once = [threading.Thread(target=server.turn) for server in servers]
            for thread in at_once:
                thread.start()
            for thread in at_once:
                thread.join()
        assert len({run.trigger_key for run in world.runs()}) == len(world.runs()) == 10
    world.ledger.close()


def test_what_is_decided_on_an_old_cursor_is_not_recorded(tmp_path, url):
    with open_ledger(url) as ledger:
        record = ledger.register_trigger("p", "t", kind="cron", rule="r", cursor={"at": "1"})
        run = RunRequest(pipeline="p", entrypoint="e")
        first = ledger.fire(record, cursor={"at": "2"}, firings=[FiringRequest(key="2", run=run)])
        assert [firing.key for firing in first] == ["2"]
        assert (
            ledger.fire(record, cursor={"at": "2"}, firings=[FiringRequest(key="2", run=run)])
            is None
        )
        again = ledger.find_trigger("p", "t")
        # The same key on a new cursor: a clock that was set back.
        assert (
            ledger.fire(again, cursor={"at": "2"}, firings=[FiringRequest(key="2", run=run)]) == []
        )
        assert len(ledger.list_runs()) == 1


@pytest.mark.parametrize(("when_busy", "waiting"), [("skip", 0), ("queue", 3)])
def test_a_time_that_finds_the_pipeline_busy_is_skipped_or_waits(world, when_busy, waiting):
    world.hands.ends = None
    serving = world.serve(served(HOURLY, when_busy=when_busy))
    for _ in range(5):
        serving.turn()
        world.pass_s(3600)
    [first, *others] = world.runs()
    assert (first.state, len(others)) == ("running", waiting)
    decisions = [firing.decision for firing in world.ledger.list_firings("p")]
    assert decisions.count("skipped") == 3 - waiting
    world.hands.end(first)
    world.hands.ends = "success"
    for _ in range(4):
        serving.turn()
    assert {run.state for run in world.runs()} == {"success"}
    assert len(world.hands.started) == 2 + waiting  # the hour that passed last, too


def test_as_many_runs_as_may_are_at_work_at_once(world):
    world.hands.ends = None
    serving = world.serve(served(interval(60, name="t"), max_concurrent=3, when_busy="queue"))
    for _ in range(7):
        serving.turn()
        world.pass_s(60)
    assert [run.state for run in world.runs()] == ["running"] * 3 + ["queued"] * 3


@pytest.mark.parametrize(
    ("catch_up", "hours"), [("last", [8]), ("all", [*range(1, 9)]), ("none", [])]
)
def test_times_that_passed_while_nothing_served(world, catch_up, hours):
    world.serve(served(HOURLY, catch_up=catch_up)).turn()
    world.pass_s(8.5 * 3600)
    serving = world.serve(served(HOURLY, catch_up=catch_up, when_busy="queue"))
    for _ in range(10):
        serving.turn()
    assert [int(run.parameters["time"][11:13]) for run in world.runs()] == hours
    missed = [f for f in world.ledger.list_firings("p") if f.decision == "missed"]
    assert bool(missed) == (catch_up != "all")


def test_a_clock_that_jumps_a_day_ahead_and_back_gives_each_time_one_run(world):
    serving = world.serve(served(HOURLY))
    for minute in range(0, 60 * 30, 10):
        world.now = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        if 200 < minute < 230:
            world.now += timedelta(days=1)
        world.seconds += 600
        serving.turn()
    times = [run.parameters["time"] for run in world.runs()]
    assert len(set(times)) == len(times)
    steady = {f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z" for hour in range(1, 30)}
    assert steady <= set(times)


def test_a_pause_passes_over_its_times(world):
    serving = world.serve(served(HOURLY))
    serving.turn()
    record = world.ledger.find_trigger("p", "hourly")
    world.ledger.pause_trigger(record, paused=True, user="ada")
    world.pass_s(3 * 3600)
    assert serving.turn() == []
    world.ledger.pause_trigger(record, paused=False, user="ada", now=world.now.isoformat())
    assert serving.turn() == []
    world.pass_s(3600)
    serving.turn()
    assert [run.parameters["time"][11:13] for run in world.runs()] == ["04"]


def test_a_table_that_changes_gives_a_run_per_version_with_the_one_before(world):
    table = str(world.project.root / "lake" / "flights")
    trigger = on_table(
        "flights",
        name="t",
        parameters={"version": "{{ trigger.version }}", "since": "{{ trigger.previous_version }}"},
    )
    serving = world.serve(served(trigger))
    serving.turn()
    assert world.runs() == []
    write_deltalake(table, rows())
    serving.turn()
    serving.turn()
    for _ in range(2):
        write_deltalake(table, rows(), mode="append")
    serving.turn()
    DeltaTable(table).optimize.compact()
    serving.turn()
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    serving.turn()
    write_deltalake(table, rows(), mode="append")
    world.serve(served(trigger)).turn()
    found = [(run.parameters["version"], run.parameters["since"]) for run in world.runs()]
    newest = DeltaTable(table).version()
    assert found[:2] == [(0, -1), (2, 0)]
    assert len(found) == 3
    assert found[2][0] == newest
    assert found[2][1] in range(2, newest)


def test_a_table_that_is_restored_or_made_anew_gives_a_run(world):
    table = str(world.project.root / "lake" / "flights")
    trigger = on_table("flights", name="t", parameters={"version": "{{ trigger.version }}"})
    for _ in range(3):
        write_deltalake(table, rows(), mode="append")
    serving = world.serve(served(trigger))
    serving.turn()
    DeltaTable(table).restore(0)
    serving.turn()
    shutil.copytree(table, table + ".backup")
    write_deltalake(table, rows(), mode="append")
    serving.turn()
    shutil.rmtree(table)  # restored from a copy: the version goes back
    shutil.copytree(table + ".backup", table)
    serving.turn()
    write_deltalake(table, rows(5), mode="append")  # a second version 4, another one
    serving.turn()
    shutil.rmtree(table)
    serving.turn()
    write_deltalake(table, rows())
    serving.turn()
    for _ in range(5):
        write_deltalake(table, rows(), mode="append")
        serving.turn()
        world.serve(served(trigger)).turn()  # a restart in between sees nothing new
    assert [run.parameters["version"] for run in world.runs()] == [2, 3, 4, 3, 4, 0, 1, 2, 3, 4, 5]


def test_any_or_all_of_several_tables(world):
    lake = world.project.root / "lake"
    both = served(on_table("a", "b", when="all", name="t"), name="both")
    either = served(on_table("a", "b", name="t"), name="either")
    serving = world.serve(both, either)
    for name, expected in [
        ("a", (0, 1)),
        ("b", (1, 2)),
        ("a", (1, 3)),
        ("a", (1, 4)),
        ("b", (2, 5)),
    ]:
        write_deltalake(str(lake / name), rows(), mode="append")
        serving.turn()
        assert (len(world.runs("both")), len(world.runs("either"))) == expected, name
    [last] = world.ledger.list_firings("both", limit=1)
    assert last.facts["versions"] == {"a": 2, "b": 1}
    assert last.facts["previous_versions"] == {"a": 0, "b": 0}


def test_quiet_time_and_gap_hold_a_run_back(world):
    table = str(world.project.root / "lake" / "flights")
    serving = world.serve(served(on_table("flights", quiet_s=60, min_gap_s=0, name="t")))
    for _ in range(5):
        write_deltalake(table, rows(), mode="append")
        serving.turn()
        world.pass_s(40)
    assert world.runs() == []
    serving.turn()
    world.pass_s(30)
    serving.turn()
    assert [firing.facts["version"] for firing in world.ledger.list_firings("p")] == [4]


def test_a_gap_passes_also_when_the_clock_is_set_back_an_hour(world, monkeypatch):
    class Back(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(hours=1)

    table = str(world.project.root / "lake" / "flights")
    serving = world.serve(served(on_table("flights", min_gap_s=600, name="t")))
    write_deltalake(table, rows())
    serving.turn()
    monkeypatch.setattr(watchers, "datetime", Back)
    write_deltalake(table, rows(), mode="append")
    for passed, runs in ((0, 1), (590, 1), (20, 2)):
        world.pass_s(passed)
        serving.turn()
        assert len(world.runs()) == runs, passed


def test_a_busy_pipeline_loses_no_table_version_and_no_file(world):
    table, folder = str(world.project.root / "lake" / "flights"), world.project.root / "in"
    folder.mkdir()
    serving = world.serve(
        served(
            on_table("flights", name="t", parameters={"since": "{{ trigger.previous_version }}"}),
            on_files("in/*.csv", settle_s=0, name="f", parameters={"files": "{{ trigger.files }}"}),
        )
    )
    write_deltalake(table, rows())
    world.hands.ends = None
    serving.turn()
    for number in range(3):
        write_deltalake(table, rows(), mode="append")
        (folder / f"{number}.csv").write_text("x")
        serving.turn()
    assert len(world.runs()) == 1
    world.hands.ends = "success"
    world.hands.end(world.runs()[0])
    for _ in range(3):
        serving.turn()
    later = [run.parameters for run in world.runs()[1:]]
    assert {"since": 0} in later
    assert sorted(file[-5:] for run in later for file in run.get("files", [])) == [
        "0.csv", "1.csv", "2.csv",
    ]  # fmt: skip


def files_of(world):
    return [[path.rpartition("/")[2] for path in run.parameters["files"]] for run in world.runs()]


def test_each_file_is_given_to_one_run_once_it_has_settled(world):
    folder = world.project.root / "in"
    (folder / "deep").mkdir(parents=True)
    trigger = on_files(
        "in/**/*.csv", settle_s=5, name="f", parameters={"files": "{{ trigger.files }}"}
    )
    serving = world.serve(served(trigger))
    (folder / "a.csv").write_text("1")
    (folder / "deep" / "b.csv").write_text("1")
    (folder / "c.txt").write_text("no")
    (folder / ".d.csv").write_text("no")
    serving.turn()
    world.pass_s(4)
    (folder / "a.csv").write_text("12")  # it grows
    serving.turn()
    world.pass_s(2)
    serving.turn()
    assert files_of(world) == [["b.csv"]]
    world.pass_s(6)
    serving.turn()
    assert files_of(world) == [["b.csv"], ["a.csv"]]
    world.pass_s(6)
    world.serve(served(trigger)).turn()
    assert len(world.runs()) == 2


def test_a_renamed_or_overwritten_file_is_a_new_one(world):
    folder = world.project.root / "in"
    folder.mkdir()
    trigger = on_files(
        "in/*.csv", settle_s=0, name="f", parameters={"files": "{{ trigger.files }}"}
    )
    serving = world.serve(served(trigger))
    (folder / "a.csv").write_text("1")
    serving.turn()
    (folder / "a.csv").rename(folder / "b.csv")
    serving.turn()
    (folder / "b.csv").write_text("123")
    world.pass_s(61)  # overwriting in place changes no folder: it is found within a minute
    serving.turn()
    assert files_of(world) == [["a.csv"], ["b.csv"], ["b.csv"]]


def test_files_that_were_there_before_can_be_passed_over(world):
    folder = world.project.root / "in"
    folder.mkdir()
    (folder / "old.csv").write_text("1")
    serving = world.serve(
        served(
            on_files(
                "in/*.csv",
                settle_s=0,
                existing=False,
                name="f",
                parameters={"files": "{{ trigger.files }}"},
            )
        )
    )
    serving.turn()
    serving.turn()
    assert world.runs() == []
    (folder / "new.csv").write_text("1")
    serving.turn()
    assert files_of(world) == [["new.csv"]]


def test_many_files_go_to_several_runs(world):
    folder = world.project.root / "in"
    folder.mkdir()
    for number in range(25):
        (folder / f"{number:02}.csv").write_text("1")
    trigger = on_files(
        "in/*.csv", settle_s=0, max_files=10, name="f", parameters={"files": "{{ trigger.files }}"}
    )
    serving = world.serve(served(trigger))
    for _ in range(5):
        serving.turn()
    given = files_of(world)
    assert [len(files) for files in given] == [10, 10, 5]
    assert len({file for files in given for file in files}) == 25


def test_continuous_keeps_one_run_at_work_and_backs_off_after_failures(world):
    serving = world.serve(
        served(
            continuous(backoff_s=10, backoff_max_s=40, parameters={"number": "{{trigger.number}}"})
        )
    )
    world.hands.ends = None
    begun = []
    for state in ["success", "failed", "failed", "failed", "failed", "success", "success"]:
        while len(world.hands.started) == len(begun):
            serving.turn()
            world.pass_s(1)
        begun.append(world.seconds)
        assert sum(run.state == "running" for run in world.runs()) == 1
        serving.turn()
        world.hands.end(world.hands.started[-1], state)
    waits = [round(late - early) for early, late in itertools.pairwise(begun)]
    assert waits[0] <= 2
    assert waits[-1] <= 2
    for wait, expected in zip(waits[1:5], [10, 20, 40, 40], strict=True):
        assert expected - 1 <= wait <= expected + 2
    assert [run.parameters["number"] for run in world.runs()] == list(range(1, 8))


def test_the_end_of_another_pipeline_starts_one_run_each(world):
    after = served(
        on_pipeline("first", name="t", parameters={"run_id": "{{ trigger.run_id }}"}), name="p"
    )
    serving = world.serve(after)
    serving.turn()
    request = RunRequest(pipeline="first", entrypoint="e")
    slow, repair = world.ledger.create_run(request)
    done = []
    for state in ["success", "failed", "success"]:
        run, own = world.ledger.create_run(request)
        world.ledger.finish_run(run.id, 0, state, token=own.token)
        done += [run.id] if state == "success" else []
        serving.turn()
    assert [run.parameters["run_id"] for run in world.runs()] == done
    world.ledger.finish_run(slow.id, 0, "success", token=repair.token)
    for _ in range(2):
        serving.turn()
        world.serve(after).turn()
    assert [run.parameters["run_id"] for run in world.runs()] == [*done, slow.id]


def test_the_very_first_look_makes_a_run_whose_end_another_pipeline_waits_for(world):
    first = served(continuous(name="c"), name="first")
    after = served(
        on_pipeline("first", name="t", parameters={"run_id": "{{ trigger.run_id }}"}), name="p"
    )
    serving = world.serve(first, after)
    serving.turn()
    [made] = world.runs("first")
    serving.turn()
    assert [run.parameters["run_id"] for run in world.runs()] == [made.id]


def test_a_trigger_that_can_not_be_looked_at_hinders_no_other(world):
    bad = served(on_table("s3://nowhere/flights", name="t"), name="bad")
    serving = world.serve(bad, served(HOURLY))
    serving.turn()
    world.pass_s(3600)
    serving.turn()
    assert len(world.runs()) == 1
    assert "S3 store" in world.ledger.find_trigger("bad", "t").problem


def test_a_database_that_is_away_is_waited_for(tmp_path, postgres_server):
    """It is gone for longer than one operation waits; the time that passed has its run afterwards."""
    world = World(tmp_path, postgres_server.url("postgres"))
    stop = threading.Event()
    with open_ledger(postgres_server.url("postgres"), retry_s=0.5) as impatient:
        serving = world.serve(served(HOURLY, name="outage"), ledger=impatient)
        serving.poll_s = 0.05
        serving.starter = type(world.hands)(impatient)
        serving.turn()
        thread = threading.Thread(target=serving.run, args=(stop,))
        thread.start()
        try:
            postgres_server.down()
            world.pass_s(3600)
            time.sleep(3)
            postgres_server.up()
            end = time.monotonic() + 120
            while not world.runs("outage") and time.monotonic() < end:
                time.sleep(0.2)
        finally:
            stop.set()
            thread.join(timeout=60)
    assert not thread.is_alive()
    assert [run.parameters["time"][11:13] for run in world.runs("outage")] == ["01"]
    world.ledger.close()
