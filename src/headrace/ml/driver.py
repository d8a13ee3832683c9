"""The driver of a study: it asks, hands trials out one by one, and tells what came of them."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.exceptions import WorkersLostError
from headrace.ml.slots import Slots
from headrace.ml.trial_ends import Rules, TrialEnds
from headrace.ml.trial_runs import TrialRuns
from headrace.ml.tune_result import StoppedBy
from headrace.ml.wire import Switchboard, send

if TYPE_CHECKING:
    from optuna import Trial

# How often a slot is looked at that has not connected, or whose engine may have ended it.
_LOOK_S = 0.5
# A worker that never gets to work, this often in a row, will not do so later.
_MOST_LOST = 3


@dataclass
class _Running:
    """A trial that a worker has."""

    trial: Trial
    line: Any


@dataclass
class Driver:
    """Runs one study over some workers.

    Attributes:
        study: The study; its `stop` may be called by a callback.
        slots: Where workers run.
        job: What every worker gets first.
        rules: How the study is run.
        runs: Its MLflow runs, or None.
    """

    study: Any
    slots: Slots
    job: dict[str, Any]
    rules: Rules
    runs: TrialRuns | None
    _ends: TrialEnds = field(init=False)
    _board: Switchboard = field(init=False)
    _lines: dict[int, Any] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)
    _asked: int = 0
    _lost: int = 0
    _stop: StoppedBy | None = None
    _ended: dict[int, tuple[Trial, Any, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ends = TrialEnds(self.study, self.rules, self.runs)

    @property
    def first_error(self) -> tuple[int, dict[str, Any]] | None:
        """The first error of an objective, as the worker told it, with its trial."""
        return self._ends.first_error

    def run(self) -> StoppedBy:
        """Run until the trials, the time or the patience is over; nothing runs afterwards.

        Raises:
            WorkersLostError: No worker gets to work.
        """
        start = time.monotonic()
        limit = self.rules.timeout_s
        deadline = math.inf if limit is None else start + limit
        self._board = Switchboard(self.slots.host)
        try:
            for slot in range(self.rules.parallelism):
                self.slots.start(slot, self._board.address)
            while not self._is_over():
                left = deadline - time.monotonic()
                if left <= 0:
                    self._stop = "deadline"
                    break
                for line, message in self._board.messages(min(_LOOK_S, left)):
                    self._handle(line, message)
                self._look_after_slots()
                self._hand_out()
            return self._stop or "trials"
        finally:
            self._end_all()

    def _is_over(self) -> bool:
        if self.study.stopped:
            self._stop = self._stop or "stop"
        if self._running or self._ended:
            return False
        return self._stop is not None or self._is_full()

    def _is_full(self) -> bool:
        return self.rules.n_trials is not None and self._asked >= self.rules.n_trials

    def _hand_out(self) -> None:
        """Give every idle worker a trial."""
        busy = set(self._running)
        if self.rules.deterministic and (busy or len(self._lines) < self.rules.parallelism):
            return
        for slot in sorted(set(self._lines) - busy):
            if self._stop is not None or self.study.stopped or self._is_full():
                return
            self._start_trial(slot)

    def _start_trial(self, slot: int) -> None:
        trial = self.study.ask(self.rules.distributions)
        self._asked += 1
        self._running[slot] = _Running(trial, self._lines[slot])
        run_id = self.runs.begin(trial.number) if self.runs else None
        message = {"number": trial.number, "params": trial.params, "mlflow_run_id": run_id}
        send(self._lines[slot], message)

    def _handle(self, line: Any, message: Any) -> None:
        slot = next((slot for slot, known in self._lines.items() if known is line), None)
        if message is None:
            if slot is not None:
                self._lose(slot)
            return
        kind, *values = message
        if kind == "hello":
            self._lines[values[0]] = line
            send(line, self.job)
        elif slot is not None and slot in self._running:
            self._talk(slot, kind, values)

    def _talk(self, slot: int, kind: str, values: list[Any]) -> None:
        """What a trial says."""
        trial, line = self._running[slot].trial, self._lines[slot]
        if kind == "suggest":
            name, parameter, positional, options = values
            self._answer(
                line, lambda: getattr(trial, f"suggest_{name}")(parameter, *positional, **options)
            )
        elif kind == "prune?":
            self._answer(line, trial.should_prune)
        elif kind == "report":
            trial.report(*values)
        elif kind == "attr":
            trial.set_user_attr(*values)
        elif kind == "stop":
            self.study.stop()
        elif kind == "done":
            del self._running[slot]
            self._finish(trial, values[0], values[1], values[2])

    def _answer(self, line: Any, function: Callable[[], Any]) -> None:
        try:
            send(line, ("value", function()))
        except Exception as error:  # noqa: BLE001 - it is the objective's
            send(line, ("error", _plain(error)))

    def _finish(self, trial: Trial, state: str, value: Any, error: dict[str, Any] | None) -> None:
        self._lost = 0
        if not self.rules.deterministic:
            self._tell(trial, state, value, error)
            return
        self._ended[trial.number] = (trial, state, (value, error))
        if not self._running:
            self._tell_batch()

    def _tell_batch(self) -> None:
        """In the order of the trials' numbers, whichever ended first."""
        for number in sorted(self._ended):
            trial, state, (value, error) = self._ended.pop(number)
            self._tell(trial, state, value, error)

    def _tell(self, trial: Trial, state: str, value: Any, error: dict[str, Any] | None) -> None:
        self._ends.end(trial, state, value, error)
        self._stop_on_failures()

    def _stop_on_failures(self) -> None:
        if self._ends.failed_too_often:
            self._stop = self._stop or "failures"

    def _lose(self, slot: int) -> None:
        """A worker is gone: its trial is told, its slot gets another one."""
        del self._lines[slot]
        reason = self._reason(slot)
        self.slots.end(slot)
        running = self._running.pop(slot, None)
        if running is not None:
            trial = running.trial
            earlier = int(trial.user_attrs.get("headrace.retry", 0))
            if earlier < self.rules.retries_of_lost:
                attrs = {"headrace.retry": earlier + 1, "headrace.retry_of": trial.number}
                self.study.enqueue_trial(trial.params, user_attrs=attrs)
                self._asked -= 1
            self._ends.lose(trial, reason)
            self._stop_on_failures()
            if self._ended and not self._running:
                self._tell_batch()
        self._replace(slot, reason)

    def _reason(self, slot: int) -> str:
        """The engine's own word, which may come a moment after the line has ended."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            found = self.slots.problem(slot)
            if found is not None:
                return found
            time.sleep(0.05)
        return "its connection ended"

    def _replace(self, slot: int, reason: str) -> None:
        self._lost += 1
        if self._lost >= _MOST_LOST * self.rules.parallelism:
            raise WorkersLostError(what="ml.tune", lost=self._lost, reason=reason)
        if self._stop is None:
            self.slots.start(slot, self._board.address)

    def _look_after_slots(self) -> None:
        """Replace workers that ended before they connected."""
        for slot in range(self.rules.parallelism):
            if slot in self._lines:
                continue
            reason = self.slots.problem(slot)
            if reason is not None:
                self.slots.end(slot)
                self._replace(slot, reason)

    def _end_all(self) -> None:
        """End every worker; trials that still ran are told as stopped."""
        for line in self._lines.values():
            send(line, None)
        self._board.close()
        self.slots.close()
        for running in self._running.values():
            self._ends.stop(running.trial, self._stop or "interrupted")
        for trial, state, (value, error) in self._ended.values():
            self._tell(trial, state, value, error)
        self._running.clear()


def _plain(error: BaseException) -> BaseException:
    """An error that surely can be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
