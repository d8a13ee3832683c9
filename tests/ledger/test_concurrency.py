from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from headrace.exceptions import (
    LeaseLostError,
    RepairConflictError,
    RunBusyError,
    SlotsFullError,
    TriggerTakenError,
)
from headrace.ledger.records import Outcome, RepairRequest, RunRequest
from headrace.ledger.store import open_ledger
from tests.ledger.writer import ATTEMPTS

WRITER = Path(__file__).parent / "writer.py"


def at_once(*works):
    """Run all at the same moment, each in a thread; their answers or errors, in order."""
    ready, answers = threading.Barrier(len(works)), [None] * len(works)

    def call(place, work):
        ready.wait()
        try:
            answers[place] = work()
        except Exception as error:
            answers[place] = error

    threads = [threading.Thread(target=call, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_fifty_runs_at_once_are_all_recorded(url, tmp_path):
    go = tmp_path / "go"
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), url, "10", str(go)], stderr=subprocess.PIPE, text=True
        )
        for _ in range(5)
    ]
    go.touch()
    failures = [writer.communicate(timeout=600)[1] for writer in writers]
    assert failures == [""] * 5
    assert {writer.returncode for writer in writers} == {0}
    with open_ledger(url) as ledger:
        runs = ledger.list_runs(limit=100)
        assert len(runs) == 50
        assert {run.state for run in runs} == {"success"}
        for run in runs:
            assert [a.result["n"] for a in ledger.attempts(run.id)] == list(range(ATTEMPTS))


def test_of_two_repairs_at_once_one_wins_and_the_other_says_so(url):
    with open_ledger(url) as one, open_ledger(url) as two:
        for _ in range(10):
            run, repair = one.create_run(RunRequest(pipeline="p", entrypoint="e"))
            one.finish_run(run.id, 0, "failed", token=repair.token)
            answers = at_once(
                partial(one.start_repair, run.id, RepairRequest(user="ada"), after_seq=0),
                partial(two.start_repair, run.id, RepairRequest(user="bob"), after_seq=0),
            )
            lost = [a for a in answers if isinstance(a, RepairConflictError)]
            assert len(lost) == 1, answers
            assert lost[0].user in ("ada", "bob")
            assert [r.seq for r in one.repairs(run.id)] == [0, 1]


def test_of_two_repairs_that_know_nothing_of_each_other_one_finds_the_run_busy(url):
    with open_ledger(url) as one, open_ledger(url) as two:
        run, repair = one.create_run(RunRequest(pipeline="p", entrypoint="e"))
        one.finish_run(run.id, 0, "failed", token=repair.token)
        answers = at_once(
            lambda: one.start_repair(run.id, RepairRequest()),
            lambda: two.start_repair(run.id, RepairRequest()),
        )
        assert sum(isinstance(a, RunBusyError) for a in answers) == 1, answers


def test_two_schedulers_make_one_run_of_a_trigger(url):
    with open_ledger(url) as one, open_ledger(url) as two:
        for tick in range(10):
            request = RunRequest(pipeline="p", entrypoint="e", trigger_key=f"tick {tick}")
            answers = at_once(partial(one.create_run, request), partial(two.create_run, request))
            assert sum(isinstance(a, TriggerTakenError) for a in answers) == 1, answers
        assert len(one.list_runs()) == 10


def test_a_result_and_the_reaper_at_the_same_moment_agree(url, fake_time):
    from tests.ledger.conftest import Driver

    with (
        open_ledger(url, clock=fake_time.clock()) as one,
        open_ledger(url, clock=fake_time.clock()) as two,
    ):
        for _ in range(10):
            run = Driver(one)
            attempt = run.start("t")
            fake_time.pass_s(46)
            finished, reaped = at_once(
                partial(one.finish_attempt, attempt.id, attempt.token, Outcome(state="success")),
                two.reap_expired,
            )
            kept = one.get_attempt(attempt.id)
            if isinstance(finished, LeaseLostError):
                assert kept.state == "crashed"
                assert [a.id for a in reaped.attempts] == [attempt.id]
            else:
                assert kept.state == finished.state == "success"
                assert not reaped.attempts


def test_of_many_waiting_runs_only_as_many_start_as_may(url):
    with open_ledger(url) as ledger:
        request = RunRequest(pipeline="p", entrypoint="e")
        runs = [ledger.create_run(request, claim=False)[0] for _ in range(6)]
        answers = at_once(*(partial(ledger.claim_repair, run.id, max_concurrent=2) for run in runs))
        assert sum(isinstance(a, SlotsFullError) for a in answers) == 4, answers
        assert len(ledger.live_runs("p")) == 2


def test_slots_are_never_oversold(url):
    from tests.ledger.conftest import Driver

    with open_ledger(url) as ledger:
        runs = [Driver(ledger) for _ in range(8)]
        answers = at_once(*(lambda run=run: run.start("t", limits={"gpu": 3}) for run in runs))
        assert sum(not isinstance(a, Exception) for a in answers) == 3
        assert ledger.slots() == {"gpu": 3}
