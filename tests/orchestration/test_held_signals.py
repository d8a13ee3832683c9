"""Signals while a run ends are noted, and those that nobody has seen yet come afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from contextvars import ContextVar

import pytest

from headrace.orchestration import held_signals
from headrace.orchestration.held_signals import (
    HeldSignals,
    putting_off_signals,
    sparing_clean_up,
    work_uninterrupted,
)


class ToldToEndError(BaseException):
    """What the handler of these tests raises, as Prefect's does."""


@pytest.fixture(autouse=True)
def _handler():
    def tell(number, _frame):
        raise ToldToEndError

    before = signal.signal(signal.SIGTERM, tell)
    yield
    assert signal.getsignal(signal.SIGTERM) is tell
    signal.signal(signal.SIGTERM, before)


def term():
    os.kill(os.getpid(), signal.SIGTERM)


def test_before_the_end_begins_a_signal_raises_as_ever():
    with pytest.raises(ToldToEndError), HeldSignals():
        term()


def test_a_first_signal_comes_when_the_end_is_recorded():
    done = []

    def end():
        with HeldSignals() as held:
            held.begin()
            term()
            done.append("recorded")

    with pytest.raises(ToldToEndError):
        end()
    assert done == ["recorded"]


@pytest.mark.parametrize(("joint_s", "told"), [(60.0, []), (0.0, ["interrupted again: SIGTERM"])])
def test_a_second_signal_is_the_same_wish_or_a_new_one(monkeypatch, joint_s, told):
    monkeypatch.setattr(held_signals, "JOINT_S", joint_s)
    heard = []
    with HeldSignals() as held:
        held.begin(heard.append)
        held.count_first()
        term()
    assert heard == told


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        heard = []
        with HeldSignals() as held:
            held.begin(heard.append)
            held.count_first()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_alarm_of_somebody_else_is_theirs():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        with HeldSignals() as held:
            held.begin()
            os.kill(os.getpid(), signal.SIGALRM)
            assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_thread_that_is_not_the_main_one_holds_nothing():
    seen = []

    def work():
        with HeldSignals() as held:
            held.begin()
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_clean_up_in_a_finally_is_spared_and_after_no_interrupt_it_is_not():
    done = []
    with sparing_clean_up(done.append, ToldToEndError()):
        pass_on_several()
        done.append("tidied")
    assert done == ["tidied"]
    with pytest.raises(ToldToEndError), sparing_clean_up(done.append, ValueError()):
        term()


def pass_on_several():
    for _ in range(5):
        term()


def test_what_is_done_in_one_piece_is_done_whole():
    done = []

    def work():
        with putting_off_signals():
            pass_on_several()
            done.append("whole")

    with pytest.raises(ToldToEndError):
        work()
    assert done == ["whole"]


def test_work_that_is_interrupted_is_stopped_and_ends_whole():
    stop, done = threading.Event(), []

    def work():
        assert stop.wait(60)
        pass_on_several()
        done.append("whole")

    def interrupt():
        time.sleep(0.2)
        pass_on_several()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(ToldToEndError):
        work_uninterrupted(work, stop=stop.set, again=done.append)
    thread.join()
    assert done == ["whole"]


def test_work_gives_its_result_or_its_error_and_sees_the_callers_context():
    variable = ContextVar("variable")
    variable.set("seen")
    assert work_uninterrupted(variable.get, stop=print, again=print) == "seen"

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work_uninterrupted(fail, stop=print, again=print)


def test_under_a_rain_of_signals_each_end_is_recorded_and_nothing_raises_in_it():
    over, recorded, late = threading.Event(), [], []
    state = {"armed": False, "ending": False}

    def tell(_number, _frame):
        if state["ending"]:
            late.append(1)
        if state["armed"]:
            state["armed"] = False
            raise ToldToEndError

    def rain():
        while not over.wait(0.0005):
            term()

    def run():
        with HeldSignals() as held:
            try:
                try:
                    state["armed"] = True
                    time.sleep(0.002)
                finally:
                    held.begin()
            except ToldToEndError:
                held.begin()
                held.count_first()
            state["ending"] = True
            time.sleep(0.002)
            recorded.append(1)
            state["ending"] = False
        state["armed"] = False

    before = signal.signal(signal.SIGTERM, tell)
    thread = threading.Thread(target=rain)
    thread.start()
    try:
        for _ in range(100):
            with contextlib.suppress(ToldToEndError):
                run()
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert len(recorded) == 100
    assert late == []
