from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.context import Lineage
from headrace.exceptions import (
    LeaseLostError,
    RepairConflictError,
    RunBusyError,
    RunNotFoundError,
    SlotsFullError,
    TaskNotFoundError,
    TriggerTakenError,
)
from headrace.ledger.records import (
    AttemptRequest,
    CodeVersion,
    ErrorInfo,
    Outcome,
    RepairRequest,
    RunRequest,
    Share,
)
from headrace.ledger.store import open_ledger
from headrace.tables import TableRef
from tests.ledger.conftest import Driver

REF = TableRef(uri="/lake/flights", version=7, schema_hash="ab", row_count=3, name="flights")


def test_a_run_is_kept_with_everything_that_was_said_of_it(ledger, url):
    request = RunRequest(
        pipeline="train_delays",
        entrypoint="flows.train_delays.train_delays",
        parameters={"rounds": 20, "names": ["a", None], "ratio": 0.5, "é": {"x": True}},
        environment="local",
        user="ada",
        code=CodeVersion(commit="abc", dirty=True),
        profiles={"train": "train-large"},
        parent_run_id="parent",
        tags={"team": "delays"},
    )
    run, repair = ledger.create_run(request)
    ledger.annotate_run(run.id, mlflow_run_id="m1")
    ledger.annotate_run(run.id, prefect_flow_run_id="f1")
    ledger.annotate_repair(repair.id, prefect_flow_run_id="f1")
    with open_ledger(url) as other:
        kept = other.get_run(run.id)
        assert (
            RunRequest(
                **kept.model_dump(include=set(RunRequest.model_fields)), profiles=repair.profiles
            )
            == request
        )
        assert (kept.mlflow_run_id, kept.prefect_flow_run_id) == ("m1", "f1")
        assert kept.state == "running"
        assert abs(kept.created_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert kept.created_at.tzinfo is not None
        assert other.current_repair(run.id).prefect_flow_run_id == "f1"


def test_an_attempt_is_kept_with_its_tables_result_and_error(drive, ledger):
    run = drive()
    attempt = run.start(
        "train",
        "k/1",
        depends_on=("load", "split/a"),
        profile="big",
        engine="ray",
        log_path="/logs/x",
    )
    ledger.annotate_attempt(attempt.id, attempt.token, pid=77, mlflow_run_id="m2")
    outcome = Outcome(
        state="failed",
        result={"auc": 0.5},
        inputs=(Lineage(ref=REF, mode="read"),),
        outputs=(Lineage(ref=REF, mode="append"),),
        error=ErrorInfo(type="ValueError", message="no\nrows", traceback="tb", retryable=False),
        usage={"cpu_s": 1.5},
    )
    ledger.finish_attempt(attempt.id, attempt.token, outcome)
    kept = ledger.get_attempt(attempt.id)
    assert Outcome(**kept.model_dump(include=set(Outcome.model_fields))) == outcome
    assert (kept.task, kept.key, kept.name) == ("train", "k/1", "train/k/1")
    assert (kept.depends_on, kept.profile, kept.pid) == (("load", "split/a"), "big", 77)
    assert kept.inputs[0].ref.version == 7
    assert kept.ended_at >= kept.started_at


@pytest.mark.parametrize(
    "result", [None, 0, 6.0, 10**30, "6.0", False, "", [], {}, 1e300, "ü" * 1000, {"a": [None]}]
)
def test_a_result_comes_back_as_it_was(ledger, sqlite_url, result):
    run = Driver(ledger)
    kept = run.did("t", result=result).result
    assert (type(kept), kept) == (type(result), result)


def test_attempts_are_numbered_without_gaps_and_the_last_one_counts(drive, ledger):
    run = drive()
    run.did("load")
    run.did("train", "failed")
    run.did("train", "success")
    run.did("score", "failed", key="a")
    run.did("score", "success", key="b")
    run.finish("failed")
    again = Driver(ledger, run.run, ledger.start_repair(run.id, RepairRequest(), after_seq=0))
    again.did("score", "success", key="a")
    numbers = [(a.name, a.number, a.repair_seq) for a in ledger.attempts(run.id)]
    assert numbers == [
        ("load", 1, 0),
        ("train", 1, 0),
        ("train", 2, 0),
        ("score/a", 1, 0),
        ("score/b", 1, 0),
        ("score/a", 2, 1),
    ]
    latest = ledger.latest_attempts(run.id)
    assert list(latest) == ["load", "train", "score/a", "score/b"]
    assert {a.state for a in latest.values()} == {"success"}
    assert ledger.latest_attempt(run.id, "score", "a").number == 2
    assert ledger.latest_attempt(run.id, "score") is None


def test_a_late_result_of_a_fenced_attempt_is_refused(drive, ledger, fake_time):
    run = drive()
    stopped = run.start("train")
    fake_time.pass_s(46)
    reaped = ledger.reap_expired()
    assert [a.id for a in reaped.attempts] == [stopped.id]
    assert reaped.attempts[0].state == "crashed"
    assert reaped.attempts[0].error.retryable
    assert ledger.get_run(run.id).state == "crashed"
    again = Driver(ledger, run.run, ledger.start_repair(run.id, RepairRequest()))
    new = again.start("train")
    for late in (
        lambda: ledger.finish_attempt(stopped.id, stopped.token, Outcome(state="success")),
        lambda: ledger.renew_lease(stopped.id, stopped.token),
        lambda: ledger.annotate_attempt(stopped.id, stopped.token, pid=1),
        lambda: run.finish("success"),
        lambda: run.start("other"),
        lambda: run.skip("other"),
        lambda: ledger.renew_driver(run.repair.id, run.repair.token),
    ):
        with pytest.raises(LeaseLostError, match="lost"):
            late()
    ledger.finish_attempt(new.id, new.token, Outcome(state="success", result=2))
    again.finish()
    assert ledger.latest_attempt(run.id, "train").result == 2
    assert [a.state for a in ledger.attempts(run.id)] == ["crashed", "success"]
    assert ledger.get_run(run.id).state == "success"


def test_a_lease_that_ran_out_unseen_can_still_be_renewed_and_finished(drive, ledger, fake_time):
    run = drive()
    attempt = run.start("train")
    fake_time.pass_s(1000)
    ledger.renew_lease(attempt.id, attempt.token)
    ledger.renew_driver(run.repair.id, run.repair.token)
    assert not ledger.reap_expired()
    ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success"))


def test_the_same_outcome_twice_is_one_and_another_one_is_refused(drive, ledger):
    run = drive()
    attempt = run.start("train")
    with pytest.raises(LeaseLostError, match="running"):
        ledger.finish_attempt(attempt.id, "another token", Outcome(state="success"))
    with pytest.raises(LeaseLostError):
        ledger.renew_lease(attempt.id, "another token")
    first = ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success", result=1))
    assert ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success")) == first
    with pytest.raises(LeaseLostError):
        ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="failed"))
    with pytest.raises(LeaseLostError):
        ledger.finish_attempt(attempt.id, "another token", Outcome(state="success"))


def test_a_task_has_one_live_attempt(drive, fake_time, ledger):
    run = drive()
    run.start("train")
    with pytest.raises(RunBusyError, match="attempt 1 of train"):
        run.start("train")
    run.start("train", "item")
    fake_time.pass_s(46)
    ledger.renew_driver(run.repair.id, run.repair.token)
    assert run.start("train").number == 2


def test_a_repair_is_refused_while_an_attempt_is_alive(drive, ledger, fake_time):
    run = drive()
    attempt = run.start("train")
    fake_time.pass_s(40)
    ledger.renew_lease(attempt.id, attempt.token)
    fake_time.pass_s(10)
    with pytest.raises(RunBusyError) as caught:
        ledger.start_repair(run.id, RepairRequest())
    assert len(caught.value.holders) == 1
    assert "train" in caught.value.holders[0]
    assert 30 < caught.value.wait_s <= 35
    fake_time.pass_s(36)
    repair = ledger.start_repair(run.id, RepairRequest())
    assert repair.seq == 1
    assert [a.state for a in ledger.attempts(run.id)] == ["crashed"]
    assert [r.state for r in ledger.repairs(run.id)] == ["crashed", "running"]


def test_a_repair_that_was_planned_before_another_one_is_a_conflict(drive, ledger):
    run = drive()
    run.finish("failed")
    won = ledger.start_repair(run.id, RepairRequest(user="ada"), after_seq=0)
    for _ in range(2):
        with pytest.raises(RepairConflictError, match="ada"):
            ledger.start_repair(run.id, RepairRequest(user="bob"), after_seq=0)
        ledger.finish_run(run.id, won.seq, "failed", token=won.token)
    assert ledger.start_repair(run.id, RepairRequest(), after_seq=1).seq == 2


def test_a_repair_keeps_what_it_was_asked_for(drive, ledger):
    run = drive(parameters={"a": 1})
    run.finish("failed")
    request = RepairRequest(
        tasks=("train",),
        with_dependents=True,
        parameters={"a": 2},
        profiles={"train": "big"},
        user="bob",
        code=CodeVersion(commit="c"),
    )
    repair = ledger.start_repair(run.id, request)
    kept = ledger.current_repair(run.id)
    assert kept == repair
    assert RepairRequest(**kept.model_dump(include=set(RepairRequest.model_fields))) == request
    assert ledger.get_run(run.id).parameters == {"a": 1}


def test_a_repair_that_waits_is_claimed_once(drive, ledger):
    run = drive()
    run.finish("failed")
    waiting = ledger.start_repair(run.id, RepairRequest(), claim=False)
    assert (waiting.state, waiting.token) == ("queued", None)
    assert ledger.get_run(run.id).state == "queued"
    with pytest.raises(RepairConflictError, match="queued"):
        ledger.start_repair(run.id, RepairRequest())
    claimed = ledger.claim_repair(run.id, 1)
    assert claimed.token
    with pytest.raises(RunBusyError):
        ledger.claim_repair(run.id, 1)
    ledger.finish_run(run.id, 1, "success", token=claimed.token)
    with pytest.raises(LeaseLostError):
        ledger.claim_repair(run.id, 1)
    with pytest.raises(LeaseLostError):
        ledger.claim_repair(run.id, 9)


def test_a_waiting_run_is_not_repaired_but_cancelled(ledger):
    run, repair = ledger.create_run(RunRequest(pipeline="p", entrypoint="e"), claim=False)
    assert (run.state, run.started_at, repair.token) == ("queued", None, None)
    with pytest.raises(RunBusyError, match="has not started"):
        ledger.start_repair(run.id, RepairRequest())
    assert not ledger.reap_expired()
    assert ledger.request_cancel(run.id)
    assert ledger.get_run(run.id).state == "cancelled"
    assert ledger.request_cancel(run.id)
    assert ledger.start_repair(run.id, RepairRequest()).seq == 1


def test_a_cancel_reaches_the_driver_and_ends_with_its_repair(drive, ledger):
    run = drive()
    assert not ledger.cancel_requested(run.id)
    assert ledger.request_cancel(run.id)
    assert ledger.request_cancel(run.id)
    assert ledger.cancel_requested(run.id)
    run.finish("cancelled")
    ledger.start_repair(run.id, RepairRequest())
    assert not ledger.cancel_requested(run.id)


def test_a_cancel_of_a_finished_run_finds_nothing(drive, ledger):
    run = drive()
    run.finish()
    assert not ledger.request_cancel(run.id)
    assert not ledger.cancel_requested(run.id)


def test_slots_follow_live_leases(drive, ledger, fake_time):
    run, other = drive(), drive(pipeline="q")
    first = run.start("train", limits={"gpu": 2, "db": 9})
    run.start("tune", limits={"gpu": 2})
    with pytest.raises(SlotsFullError, match="gpu"):
        other.start("train", limits={"gpu": 2})
    assert ledger.slots() == {"gpu": 2, "db": 1}
    assert ledger.live_runs("p") == [run.id]
    ledger.finish_attempt(first.id, first.token, Outcome(state="failed"))
    assert ledger.slots(["gpu", "db", "none"]) == {"gpu": 1, "db": 0, "none": 0}
    fake_time.pass_s(46)
    ledger.renew_driver(other.repair.id, other.repair.token)
    assert ledger.slots() == {}
    assert ledger.live_runs("p") == []
    assert ledger.live_runs("q") == [other.id]
    other.start("train", limits={"gpu": 1})


def test_a_task_that_never_started_has_history(drive, ledger):
    run = drive()
    run.did("b", "failed")
    skipped = run.skip("c", depends_on=("b",), reason="b failed")
    assert (skipped.number, skipped.state, skipped.started_at) == (1, "upstream_failed", None)
    assert run.skip("c", depends_on=("b",), reason="b failed").id == skipped.id
    assert ledger.latest_attempts(run.id)["c"].reason == "b failed"


def test_a_reused_result_stands_for_the_attempt_that_made_it(drive, ledger):
    run = drive()
    made = run.did("load", result={"n": 1}, outputs=(Lineage(ref=REF, mode="overwrite"),))
    run.finish("failed")
    for seq in (1, 2):
        repair = ledger.start_repair(run.id, RepairRequest())
        last = ledger.latest_attempt(run.id, "load")
        for _ in range(2):
            reused = ledger.record_reused(run.id, last.id, seq=seq, token=repair.token)
        assert (reused.number, reused.reused_from) == (seq + 1, made.id)
        assert (reused.result, reused.outputs) == (made.result, made.outputs)
        ledger.finish_run(run.id, seq, "failed", token=repair.token)


def test_a_mark_by_hand_is_the_latest_attempt_and_keeps_its_reason(drive, ledger):
    run = drive()
    run.did("load")
    failed = run.did(
        "train", "failed", depends_on=("load",), outputs=(Lineage(ref=REF, mode="append"),)
    )
    with pytest.raises(RunBusyError):
        ledger.mark(run.id, "train", state="success", reason="r", user="ada")
    run.finish("failed")
    marked = ledger.mark(run.id, "train", state="success", reason="checked by hand", user="ada")
    assert (marked.number, marked.marked_by, marked.reason) == (2, "ada", "checked by hand")
    assert (marked.depends_on, marked.outputs) == (failed.depends_on, failed.outputs)
    assert ledger.get_run(run.id).state == "success"
    ledger.mark(run.id, "load", state="failed", reason="wrong file", user="ada")
    assert ledger.get_run(run.id).state == "failed"
    with pytest.raises(TaskNotFoundError, match="train"):
        ledger.mark(run.id, "trian", state="failed", reason="r", user="ada")


def test_a_mark_does_not_turn_a_crashed_run_green(drive, ledger, fake_time):
    run = drive()
    run.start("load")
    fake_time.pass_s(46)
    ledger.reap_expired()
    ledger.mark(run.id, "load", state="success", reason="it is there", user="ada")
    assert ledger.get_run(run.id).state == "crashed"


def test_runs_are_found_by_id_beginning_end_and_last(drive, ledger):
    runs = [drive() for _ in range(3)]
    assert ledger.get_run().id == ledger.get_run("last").id == runs[-1].id
    assert ledger.get_run(runs[0].id).number == runs[0].run.number
    assert ledger.get_run(runs[0].id[-4:]).id == runs[0].id
    assert ledger.get_run(runs[0].id[:-1]).id == runs[0].id
    with pytest.raises(RunNotFoundError, match="More than one"):
        ledger.get_run(runs[0].id[:4])
    for unknown in ("nothing", "%", "_", "", "____"):
        with pytest.raises(RunNotFoundError):
            ledger.get_run(unknown)
    with pytest.raises(RunNotFoundError):
        ledger.start_repair("nothing", RepairRequest())


def test_an_empty_ledger_has_no_last_run(ledger):
    with pytest.raises(RunNotFoundError, match="no run"):
        ledger.get_run("last")
    assert ledger.list_runs() == []


def test_runs_are_listed_newest_first_and_filtered(drive, ledger):
    first, second, third = drive(), drive(pipeline="q"), drive()
    first.finish("failed")
    assert [run.id for run in ledger.list_runs()] == [third.id, second.id, first.id]
    assert [run.id for run in ledger.list_runs(limit=1)] == [third.id]
    assert [run.id for run in ledger.list_runs(pipeline="p")] == [third.id, first.id]
    assert [run.id for run in ledger.list_runs(state="failed")] == [first.id]
    later = datetime.now(UTC) + timedelta(days=1)
    assert ledger.list_runs(since=later) == []
    assert len(ledger.list_runs(since=later - timedelta(days=2))) == 3


def test_the_last_success_is_found_over_all_runs(drive, ledger):
    one, two = drive(), drive()
    good = two.did("score")
    one.did("score", "failed")
    one.did("score", key="a")
    assert ledger.last_success("p", "score").id == good.id
    assert ledger.last_success("p", "train") is None
    assert ledger.last_success("other", "score") is None


def test_a_trigger_has_one_run(ledger):
    request = RunRequest(pipeline="p", entrypoint="e", trigger_key="2026-01-01T06:00Z")
    run, _ = ledger.create_run(request, claim=False)
    with pytest.raises(TriggerTakenError) as caught:
        ledger.create_run(request)
    assert caught.value.run_id == run.id
    ledger.create_run(request.model_copy(update={"pipeline": "q"}))
    ledger.create_run(request.model_copy(update={"trigger_key": None}))


def test_a_repair_makes_up_for_what_an_earlier_one_did_not_come_to(drive, ledger, fake_time):
    run = drive()
    run.did("load")
    run.did("train", depends_on=("load",))
    run.did("score", depends_on=("train",))
    run.finish()
    assert ledger.plan_repair(run.id, RepairRequest()).is_empty
    request = RepairRequest(tasks=("train",), with_dependents=True)
    plan = ledger.plan_repair(run.id, request)
    again = Driver(ledger, run.run, ledger.start_repair(run.id, request, plan=plan))
    again.did("train", depends_on=("load",))
    fake_time.pass_s(46)
    ledger.reap_expired()
    plan = ledger.plan_repair(run.id, RepairRequest())
    assert plan.names("run") == ["score"]
    assert "did not come to it" in plan.of("score").why
    last = Driver(ledger, run.run, ledger.start_repair(run.id, RepairRequest(), plan=plan))
    last.did("score", depends_on=("train",))
    last.finish()
    assert ledger.plan_repair(run.id, RepairRequest()).is_empty


def test_unknown_links_are_a_mistake_of_the_caller(drive, ledger):
    attempt = drive().start("t")
    with pytest.raises(TypeError, match="colour"):
        ledger.annotate_attempt(attempt.id, attempt.token, colour="red")


def test_an_unknown_attempt_has_lost_its_lease(ledger):
    with pytest.raises(LeaseLostError, match="attempt id 99"):
        ledger.renew_lease(99, "t")
    with pytest.raises(LeaseLostError):
        ledger.renew_driver(99, "t")
    assert ledger.get_attempt(99) is None


def test_a_limit_may_be_taken_in_parts(drive, ledger):
    first, second = drive(), drive()
    half = {"cores of here": Share(take=2, most=4)}
    attempt = first.start("a", limits=half)
    second.start("b", limits=half)
    with pytest.raises(SlotsFullError, match="4 of 4"):
        second.start("c", limits={"cores of here": Share(take=1, most=4)})
    assert attempt.limits == {"cores of here": 2}
    ledger.finish_attempt(attempt.id, attempt.token, Outcome(state="success"))
    second.start("c", limits=half)
    assert ledger.slots() == {"cores of here": 4}


def test_the_second_wish_to_cancel_is_told_from_the_first(drive, ledger):
    run = drive()
    ledger.request_cancel(run.id)
    first = ledger.cancel_asked_at(run.id)
    ledger.request_cancel(run.id)
    assert first is not None
    assert ledger.cancel_asked_at(run.id) not in (None, first)


def test_open_attempts_are_those_that_have_not_ended(drive, ledger):
    run = drive()
    run.did("a")
    run.start("b")
    assert [attempt.name for attempt in ledger.open_attempts(run.id)] == ["b"]


def test_a_call_that_was_wrong_is_a_failed_task_with_its_error(drive, ledger):
    run = drive()
    error = ErrorInfo(type="ArgumentError", message="a set is no JSON", retryable=False)
    ledger.record_skipped(
        run.id,
        AttemptRequest(task="t"),
        "failed",
        seq=0,
        token=run.repair.token,
        error=error,
    )
    assert ledger.latest_attempt(run.id, "t").error == error
    assert ledger.plan_repair(run.id, RepairRequest()).names("run") == ["t"]


def test_a_crashed_attempt_ends_when_it_was_last_heard_of(drive, ledger, fake_time):
    run = drive()
    attempt = run.start("t")
    fake_time.pass_s(10_000)
    ledger.reap_expired()
    crashed = ledger.get_attempt(attempt.id)
    assert crashed.state == "crashed"
    assert abs((crashed.ended_at - crashed.started_at).total_seconds()) < 5
