"""How a study is run, and how it is told what came of its trials, wherever they ran."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.ml.trial_runs import TrialRuns

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

log = logging.getLogger("headrace.ml")

Callback = Callable[["Study", "FrozenTrial"], None]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a study is run.

    Attributes:
        n_trials: Trials to run; None for no bound.
        timeout_s: The study's deadline from its start; None for none.
        parallelism: Workers.
        max_failures: Failures in a row that stop the study; None for no bound.
        retries_of_lost: How often the parameters of a trial are tried again whose worker was lost.
        deterministic: Ask for a batch, wait for all of it, tell in order.
        distributions: What is sampled when a trial is asked for.
        callbacks: Called on the driver after each trial.
    """

    n_trials: int | None
    timeout_s: float | None
    parallelism: int
    max_failures: int | None
    retries_of_lost: int
    deterministic: bool
    distributions: dict[str, Any]
    callbacks: Sequence[Callback]


@dataclass
class TrialEnds:
    """Tells a study how its trials have ended.

    Attributes:
        study: The study.
        rules: How it is run.
        runs: Its MLflow runs, or None.
        first_error: The first error of an objective, as the worker told it, with its trial.
    """

    study: Any
    rules: Rules
    runs: TrialRuns | None
    first_error: tuple[int, dict[str, Any]] | None = None
    _failures: int = 0

    @property
    def failed_too_often(self) -> bool:
        """Whether as many have failed in a row as stop the study."""
        limit = self.rules.max_failures
        return limit is not None and self._failures >= limit

    def end(
        self, trial: Trial, state: str, value: Any = None, error: dict[str, Any] | None = None
    ) -> None:
        """Tell of a trial whose objective has ended.

        Args:
            trial: The trial.
            state: `complete`, `pruned` or `fail`.
            value: What the objective returned, for `complete`.
            error: What it raised, as the worker told it.
        """
        from optuna.trial import TrialState

        error = error or wrong_value(state, value)
        if error is not None:
            state = "fail"
            self.first_error = self.first_error or (trial.number, error)
            text = f"{error['type']}: {error['message']}"[:1_000]
            trial.set_user_attr("headrace.error", text)
            log.warning("trial %d failed: %s", trial.number, text)
        final = float(value) if state == "complete" else None
        self._tell(trial, final, TrialState[state.upper()])

    def lose(self, trial: Trial, reason: str) -> None:
        """Tell of a trial whose worker is gone."""
        from optuna.trial import TrialState

        trial.set_user_attr("headrace.lost", reason)
        log.warning("trial %d lost its worker: %s", trial.number, reason)
        self._tell(trial, None, TrialState.FAIL)

    def stop(self, trial: Trial, reason: str) -> None:
        """Tell of a trial that was ended with the study: that is no failure of its own."""
        from optuna.trial import TrialState

        trial.set_user_attr("headrace.stopped", reason)
        frozen = self.study.tell(trial, state=TrialState.FAIL)
        if self.runs:
            self.runs.finish(frozen)

    def _tell(self, trial: Trial, value: float | None, state: Any) -> None:
        frozen = self.study.tell(trial, value, state)
        self._failures = self._failures + 1 if state.name == "FAIL" else 0
        if self.runs:
            self.runs.finish(frozen)
        for callback in self.rules.callbacks:
            callback(self.study, frozen)


def wrong_value(state: str, value: Any) -> dict[str, Any] | None:
    """What is wrong with the value of a complete trial, told like an error of the objective."""
    if state != "complete" or is_number(value):
        return None
    text = f"the objective returned {value!r:.80}, which is no number"
    return {"type": "ValueError", "message": text, "traceback": text, "error": None}


def is_number(value: Any) -> bool:
    """Whether a study can be told this value."""
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError):
        return False
