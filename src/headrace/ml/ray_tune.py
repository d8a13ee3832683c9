"""Ray Tune as a place for trials, for its schedulers: the study is asked and told as elsewhere."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from headrace.bridge.staging import new_staging_table
from headrace.context import current_context
from headrace.delta.location import filesystem_path, normal_uri, open_filesystem
from headrace.ml.trial_ends import Rules, TrialEnds
from headrace.ml.trial_runs import TrialRuns
from headrace.ml.tune_result import StoppedBy
from headrace.ml.tune_trial import DONE, METRIC, run_trial

_LOOK_S = 0.5


@dataclass
class TuneDriver:
    """Runs a study's trials in Ray Tune.

    Attributes:
        study: The study.
        job: What every trial needs: objective, threads, environment.
        data: A reference to the data in the object store, or None.
        rules: How the study is run; Ray Tune starts and ends the workers.
        runs: Its MLflow runs, or None.
        scheduler: Ray Tune's scheduler.
    """

    study: Any
    job: dict[str, Any]
    data: Any
    rules: Rules
    runs: TrialRuns | None
    scheduler: Any
    _ends: TrialEnds = field(init=False)
    _stop: StoppedBy | None = None
    _deadline: float = math.inf
    _interrupted: bool = False
    _running: dict[str, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ends = TrialEnds(self.study, self.rules, self.runs)

    @property
    def first_error(self) -> tuple[int, dict[str, Any]] | None:
        """The first error of an objective, as the worker told it, with its trial."""
        return self._ends.first_error

    def run(self) -> StoppedBy:
        """Run until the trials, the time or the patience is over; nothing runs afterwards."""
        if self.rules.timeout_s is not None:
            self._deadline = time.monotonic() + self.rules.timeout_s
        outcome: list[BaseException] = []

        def fit() -> None:
            try:
                self._fit()
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                outcome.append(error)

        # In a thread Ray Tune leaves Ctrl-C alone: in the main one it would swallow it.
        thread = threading.Thread(target=fit, name="headrace-ray-tune", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_S)
        except BaseException:
            self._interrupted = True
            thread.join(60)
            raise
        finally:
            self._end_left()
        if outcome:
            raise outcome[0]
        return self._stop or ("stop" if self.study.stopped else "trials")

    def is_over(self) -> bool:
        """Whether everything has to end now, trials that run included."""
        if time.monotonic() >= self._deadline:
            self._stop = self._stop or "deadline"
        return self._interrupted or self._stop == "deadline"

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """The next trial's configuration, or Ray Tune's word for the end."""
        if self.study.stopped or self._stop is not None or self._interrupted:
            return "FINISHED"
        trial = self.study.ask(self.rules.distributions)
        run_id = self.runs.begin(trial.number) if self.runs else None
        self._running[trial_id] = _Running(trial)
        message = {"number": trial.number, "mlflow_run_id": run_id}
        return {**trial.params, "_headrace": message}

    def on_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A value that a trial has reported."""
        running = self._running.get(trial_id)
        if running is None:
            return
        self._take(running, result)
        if DONE not in result:
            running.values[int(result["step"])] = float(result[METRIC])

    def on_end(self, trial_id: str, result: dict[str, Any] | None, *, lost: bool) -> None:
        """A trial has ended: by itself, by the scheduler, or with its worker."""
        running = self._running.pop(trial_id, None)
        if running is None:
            return
        if result is not None:
            # Ray Tune tells the last result here only.
            self._take(running, result)
        last = running.last
        if self.is_over() and DONE not in last:
            self._tell_stopped(running)
            return
        running.report_values()
        if lost and DONE not in last:
            self._ends.lose(running.trial, "its Ray worker crashed or was killed")
        else:
            self._ends.end(running.trial, *_outcome(last, self.scheduler))
        if self._ends.failed_too_often:
            self._stop = self._stop or "failures"

    def _take(self, running: _Running, result: dict[str, Any]) -> None:
        """What a result says beside its value."""
        running.last = result
        for key, value in result.get("attrs") or ():
            running.trial.set_user_attr(key, value)
        if result.get("stop"):
            self.study.stop()

    def _fit(self) -> None:
        from ray import tune

        place = _place()
        trainable = tune.with_parameters(run_trial, job=self.job, refs=[self.data])
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": self.job["threads"]}),
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="min" if self.study.direction.name == "MINIMIZE" else "max",
                search_alg=make_searcher(self),
                scheduler=self.scheduler,
                num_samples=self.rules.n_trials if self.rules.n_trials is not None else -1,
                max_concurrent_trials=self.rules.parallelism,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=place[0],
                storage_filesystem=place[1],
                stop=make_stopper(self),
                verbose=0,
            ),
        )
        tuner.fit()

    def _end_left(self) -> None:
        """Tell trials that still ran as stopped."""
        for running in list(self._running.values()):
            self._tell_stopped(running)
        self._running.clear()

    def _tell_stopped(self, running: _Running) -> None:
        running.report_values()
        self._ends.stop(running.trial, self._stop or "interrupted")


@dataclass
class _Running:
    """A trial that Ray Tune has.

    Attributes:
        trial: What was asked for.
        last: What it said last.
        values: Its intermediate values by step.
    """

    trial: Any
    last: dict[str, Any] = field(default_factory=dict)
    values: dict[int, float] = field(default_factory=dict)

    def report_values(self) -> None:
        """Tell the study's trial what it has reported so far."""
        for step, reported in sorted(self.values.items()):
            self.trial.report(reported, step)


def _outcome(last: dict[str, Any], scheduler: Any) -> tuple[str, Any, dict[str, Any] | None]:
    """How a trial ended by its last word: its state, its value, the objective's error."""
    if DONE in last:
        state, value, error = last[DONE]
        return state, value, error
    if METRIC not in last:
        return "fail", None, None
    # A scheduler that lets a trial run to its longest ends it there: that is no pruning.
    longest = getattr(scheduler, "_max_t", math.inf)
    full = last.get(getattr(scheduler, "_time_attr", ""), 0) >= longest
    return ("complete", float(last[METRIC]), None) if full else ("pruned", None, None)


def _place() -> tuple[str, Any]:
    address = normal_uri(new_staging_table())
    if "://" not in address:
        return address, None
    return filesystem_path(address), open_filesystem(address, current_context().storage)


def make_searcher(driver: TuneDriver) -> Any:
    """What Ray Tune asks for configurations."""
    from ray.tune.search import Searcher

    class StudySearcher(Searcher):  # type: ignore[misc]
        def suggest(self, trial_id: str) -> Any:
            return driver.suggest(trial_id)

        def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
            driver.on_result(trial_id, result)

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            driver.on_end(trial_id, result, lost=error)

        # The study is kept by its own storage, not by Ray Tune.
        def save(self, checkpoint_path: str) -> None:
            pass

        def restore(self, checkpoint_path: str) -> None:
            pass

        def __reduce__(self) -> Any:
            return Searcher, ()

    return StudySearcher()


def make_stopper(driver: TuneDriver) -> Any:
    """What Ray Tune asks whether all has to end."""
    from ray.tune import Stopper

    class StudyStopper(Stopper):  # type: ignore[misc]
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002
            return False

        def stop_all(self) -> bool:
            return driver.is_over()

        def __reduce__(self) -> Any:
            from ray.tune.stopper import NoopStopper

            return NoopStopper, ()

    return StudyStopper()
