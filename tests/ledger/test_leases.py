from __future__ import annotations

import threading
import time

import pytest

from headrace.exceptions import LeaseLostError, LedgerUnavailableError
from headrace.ledger.heartbeat import keep_lease
from headrace.ledger.leases import Beat, Clock, LeaseWatch, own_clock
from headrace.ledger.records import AttemptRequest, Outcome, RepairRequest, RunRequest
from headrace.ledger.store import open_ledger


def beat(count=0, *, clock="there/ns", at=0.0, token="t", lease_s=45.0):
    return Beat(holder=("attempt", 1), token=token, beat=count, clock=clock, at=at, lease_s=lease_s)


def test_on_the_same_boot_the_clock_itself_decides(fake_time):
    watch = LeaseWatch(clock=fake_time.clock())
    held = beat(clock="here/ns", at=1000.0)
    assert watch.left_s(held) == 45
    fake_time.pass_s(44.9)
    assert watch.is_live(held)
    fake_time.pass_s(0.2)
    assert not watch.is_live(held)


def test_a_beat_from_the_future_is_that_of_a_cloned_machine_and_is_watched(fake_time):
    watch = LeaseWatch(clock=fake_time.clock())
    held = beat(clock="here/ns", at=5000.0)
    assert watch.left_s(held) == 45
    fake_time.pass_s(46)
    assert not watch.is_live(held)


def test_a_lease_of_another_machine_is_over_when_no_beat_came_for_its_length(fake_time):
    watch = LeaseWatch(clock=fake_time.clock())
    assert watch.is_live(beat(1))
    fake_time.pass_s(44)
    assert watch.is_live(beat(1))
    assert watch.is_live(beat(2))
    fake_time.pass_s(44)
    assert watch.is_live(beat(2))
    fake_time.pass_s(2)
    assert not watch.is_live(beat(2))
    assert watch.is_live(beat(2, token="another holder"))
    watch.forget(("attempt", 1))
    assert watch.is_live(beat(2))


def test_after_a_restart_of_the_only_machine_every_older_lease_is_over(fake_time):
    watch = LeaseWatch(clock=fake_time.clock("second-boot"), one_machine=True)
    assert not watch.is_live(beat(clock="first-boot/ns", at=999_999.0))
    # The same boot in another time namespace, or a system that tells no boot, has to be watched.
    assert watch.is_live(beat(clock="second-boot/other-ns"))
    assert watch.is_live(beat(clock="unknown/abc"))
    assert watch.is_live(beat(clock=None))


def test_what_nobody_holds_is_over():
    assert not LeaseWatch().is_live(beat(token=None))


def test_every_process_of_this_machine_reads_the_same_clock():
    assert own_clock().id == own_clock().id
    assert own_clock().boot != "unknown"


def test_a_system_without_a_boot_id_is_watched(monkeypatch):
    own_clock.cache_clear()
    monkeypatch.setattr("headrace.ledger.leases.Path.read_text", _no_file)
    try:
        assert own_clock().boot == "unknown"
    finally:
        own_clock.cache_clear()


def _no_file(*_args, **_kwargs):
    raise FileNotFoundError


def test_a_wall_clock_set_back_or_ahead_changes_no_decision(url, fake_time, monkeypatch):
    from datetime import UTC, datetime, timedelta

    offset = [timedelta(0)]
    monkeypatch.setattr("headrace.ledger.rows.utc_now", lambda: datetime.now(UTC) + offset[0])
    monkeypatch.setattr("headrace.ledger.runs.utc_now", lambda: datetime.now(UTC) + offset[0])
    monkeypatch.setattr("headrace.ledger.attempts.utc_now", lambda: datetime.now(UTC) + offset[0])
    with open_ledger(url, clock=fake_time.clock()) as ledger:
        for hours in (0, -1, 1, -24):
            offset[0] = timedelta(hours=hours)
            run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"))
            attempt = ledger.start_attempt(
                run.id, AttemptRequest(task="t"), seq=0, token=repair.token
            )
            for jump in (-1, 1):
                offset[0] = timedelta(hours=hours + jump)
                fake_time.pass_s(40)
                ledger.renew_lease(attempt.id, attempt.token)
                ledger.renew_driver(repair.id, repair.token)
                assert not ledger.reap_expired()
            assert ledger.get_run("last").id == run.id
            assert ledger.list_runs(limit=1)[0].id == run.id
            offset[0] = timedelta(hours=hours - 1)
            fake_time.pass_s(46)
            assert len(ledger.reap_expired().attempts) == 1


def test_two_machines_share_a_ledger_on_postgres(request, fake_time):
    server = request.getfixturevalue("postgres_server")
    address = server.url("postgres")
    with (
        open_ledger(address, clock=fake_time.clock("one")) as one,
        open_ledger(address, clock=Clock(id="two/ns", now=lambda: fake_time.now / 7)) as two,
    ):
        run, repair = one.create_run(RunRequest(pipeline="p", entrypoint="e"))
        attempt = one.start_attempt(run.id, AttemptRequest(task="t"), seq=0, token=repair.token)
        fake_time.pass_s(1000)
        assert two.live_holders(run.id)
        one.renew_driver(repair.id, repair.token)
        one.renew_lease(attempt.id, attempt.token)
        fake_time.pass_s(40 * 7)
        assert not two.reap_expired()
        fake_time.pass_s(46 * 7)
        assert len(two.reap_expired().attempts) == 1
        with pytest.raises(LeaseLostError):
            one.finish_attempt(attempt.id, attempt.token, Outcome(state="success"))
        assert two.start_repair(run.id, RepairRequest()).seq == 1


def test_a_beat_between_the_look_and_the_mark_saves_the_attempt(drive, ledger, fake_time):
    run = drive()
    attempt = run.start("t")
    fake_time.pass_s(46)
    with ledger.database.engine.connect() as connection:
        dead = ledger._dead(connection, _attempt_table(), None)
    ledger.renew_lease(attempt.id, attempt.token)
    assert not ledger.database.write(lambda c: ledger._crash(c, _attempt_table(), dead[0]))
    assert ledger.get_attempt(attempt.id).state == "running"


def _attempt_table():
    from headrace.ledger.schema import attempt

    return attempt


def test_waiting_ends_when_nothing_is_alive_any_more(sqlite_url):
    with open_ledger(sqlite_url) as ledger:
        run, _ = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"), lease_s=0.3)
        assert not ledger.wait_until_idle(run.id, timeout_s=0)
        assert ledger.wait_until_idle(run.id, timeout_s=60)
        assert ledger.get_run(run.id).state == "crashed"


class Renewals:
    """Answers renewals as told, and counts them."""

    def __init__(self, answer=None):
        self.answer, self.count, self.patience = answer, 0, []

    def __call__(self, holder_id, token, lease_s, /, *, patience_s=None):
        self.count += 1
        self.patience.append(patience_s)
        if self.answer:
            raise self.answer


def until(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to pass")


def test_a_heartbeat_renews_until_the_block_ends():
    renew = Renewals()
    with keep_lease(renew, 1, "t", on_lost=lambda: None, lease_s=60, beat_s=0.01) as lost:
        until(lambda: renew.count > 3)
    assert not lost.is_set()
    assert all(0 < patience <= 60 for patience in renew.patience)


def test_a_lost_lease_stops_the_holder_once():
    calls = []
    renew = Renewals(LeaseLostError(holder="h", state="crashed"))
    with keep_lease(
        renew, 1, "t", on_lost=lambda: calls.append(1), lease_s=60, beat_s=0.01
    ) as lost:
        assert lost.wait(20)
        until(lambda: calls)
    assert (calls, renew.count) == ([1], 1)


@pytest.mark.parametrize(
    "error", [LedgerUnavailableError(address="a", waited_s=1, cause="c"), RuntimeError("odd")]
)
def test_a_ledger_that_is_gone_is_no_loss_before_the_lease_is_over(error):
    renew, stop = Renewals(error), threading.Event()
    with keep_lease(renew, 1, "t", on_lost=stop.set, lease_s=3600, beat_s=0.01) as lost:
        until(lambda: renew.count > 3)
        assert not lost.is_set()
        renew.answer = None
        until(lambda: renew.count > 6)
        assert not lost.is_set()
    with keep_lease(Renewals(error), 1, "t", on_lost=stop.set, lease_s=0.1, beat_s=0.01) as lost:
        assert lost.wait(20)


def test_a_lease_outlives_its_length_while_it_is_kept(ledger, fake_time):
    run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"))
    renew, token = ledger.renew_driver, repair.token
    with keep_lease(renew, repair.id, token, on_lost=lambda: None, beat_s=0.01) as lost:
        for _ in range(4):
            fake_time.pass_s(30)
            until(lambda: min(ledger.live_holders(run.id).values()) == repair.lease_s)
            assert not ledger.reap_expired()
    assert not lost.is_set()
