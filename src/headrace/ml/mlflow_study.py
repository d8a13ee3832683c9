"""MLflow's own MlflowSparkStudy as a place for trials, with guards for what it does not do.

In MLflow 3.17 its time-out is one of each Spark task, `n_trials=None` runs nothing and reports
success, `study.stop()` raises, the job group stays set, and Ctrl-C cancels nothing.
"""

from __future__ import annotations

import logging
import pickle
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace.exceptions import WorkersLostError
from headrace.ml.layers import inside
from headrace.ml.spark_job import SparkJob
from headrace.ml.threads import thread_caps
from headrace.ml.trial_ends import Rules
from headrace.ml.tune_result import StoppedBy

log = logging.getLogger("headrace.ml")

_LOOK_S = 0.5
_CANCEL_S = 60
STOP = "headrace.stop"


@dataclass
class MlflowStudyDriver:
    """Runs a study's trials by MlflowSparkStudy.

    Attributes:
        study: The study, kept by MLflow.
        job: What every trial needs: objective, threads.
        data: A broadcast variable of Spark, or None.
        rules: How the study is run.
        spark: The session.
        first_error: The first error of an objective, with its trial.
    """

    study: Any
    job: dict[str, Any]
    data: Any
    rules: Rules
    spark: Any
    first_error: tuple[int, dict[str, Any]] | None = None

    def run(self) -> StoppedBy:
        """Run until the trials, the time or the patience is over; nothing runs afterwards.

        Raises:
            WorkersLostError: Spark lost a worker: MlflowSparkStudy does not go on then.
        """
        limit = self.rules.timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        job = SparkJob(self.spark, "headrace-tune", self._optimize)
        job.start()
        stopped: StoppedBy = "trials"
        try:
            while job.alive():
                job.join(_LOOK_S)
                if deadline is not None and time.monotonic() >= deadline and job.alive():
                    stopped = "deadline"
                    _cancel(job)
                    break
        except BaseException:
            _cancel(job)
            self._end_left("interrupted")
            raise
        self._end_left(stopped)
        self._find_first_error()
        reason = self.study.user_attrs.get(STOP)
        if stopped == "trials" and reason is not None:
            return "failures" if reason == "failures" else "stop"
        error = job.problem()
        if stopped == "trials" and error is not None:
            _raise(error)
        return stopped

    def _optimize(self) -> None:
        from mlflow.pyspark.optuna.study import MlflowSparkStudy

        # It leaves a job group that is set alone.
        twin = MlflowSparkStudy(
            self.study.study_name,
            self.study._storage,  # noqa: SLF001 - the same one
            sampler=self.study.sampler,
            pruner=self.study.pruner,
        )
        twin.optimize(
            GuardedObjective(self.job, self.data, self.rules),
            n_trials=self.rules.n_trials,
            n_jobs=min(self.rules.parallelism, self.rules.n_trials or 1),
            catch=(Exception,),
        )

    def _end_left(self, reason: str) -> None:
        """Tell trials that a cancelled or lost task has left running, and end their runs."""
        from optuna.trial import TrialState

        storage = self.study._storage  # noqa: SLF001
        storage.flush_all_batches()
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            key = "headrace.lost" if reason == "trials" else "headrace.stopped"
            storage.set_trial_user_attr(trial._trial_id, key, reason)  # noqa: SLF001
            # Not by `study.tell`: MLflow's storage doesn't find a trial by its number.
            storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)  # noqa: SLF001
        storage.flush_all_batches()

    def _find_first_error(self) -> None:
        for trial in sorted(self.study.get_trials(deepcopy=False), key=lambda item: item.number):
            text = trial.user_attrs.get("headrace.error")
            if text is not None:
                kind, _, message = str(text).partition(": ")
                told = {"type": kind, "message": message, "traceback": text, "error": None}
                self.first_error = (trial.number, told)
                return


def _cancel(job: SparkJob) -> None:
    job.cancel(_CANCEL_S)
    if job.alive():
        log.warning("Spark has not ended the study's trials within %d s", _CANCEL_S)


def _raise(error: BaseException) -> NoReturn:
    text = str(error)
    if "Python worker exited unexpectedly" in text or "crashed" in text:
        reason = "its Python worker crashed or was killed"
        raise WorkersLostError(what="MlflowSparkStudy", lost=1, reason=reason) from error
    raise error


class GuardedObjective:
    """The objective as an executor runs it: `study.stop()` works, failures in a row end it.

    Args:
        job: The objective and its threads.
        data: A broadcast variable, or None.
        rules: How the study is run.
    """

    def __init__(self, job: dict[str, Any], data: Any, rules: Rules) -> None:
        self._code: bytes = job["objective"]
        self._threads: int = job["threads"]
        self._data = data
        self._distributions = dict(rules.distributions)
        self._max_failures = rules.max_failures

    def __call__(self, trial: Any) -> Any:
        """Run one trial, or leave it out when the study has been stopped."""
        from optuna import TrialPruned

        study = trial.study
        if study.user_attrs.get(STOP) or self._too_many_failures(study):
            trial.set_user_attr("headrace.stopped", "the study was stopped before it began")
            raise TrialPruned
        study.stop = lambda: _stop(study, "stop")
        trial.data = None if self._data is None else self._data.value
        suggest_all(trial, self._distributions)
        try:
            with thread_caps(self._threads), inside("tuning trial"):
                return pickle.loads(self._code)(trial)  # noqa: S301 - our own bytes
        except TrialPruned:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1_000]
            trial.set_user_attr("headrace.error", text)
            raise

    def _too_many_failures(self, study: Any) -> bool:
        from optuna.trial import TrialState

        if self._max_failures is None:
            return False
        ended = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        # MLflow's storage gives the newest first.
        trials = sorted(study.get_trials(deepcopy=False, states=ended), key=lambda t: t.number)
        trials = trials[-self._max_failures :]
        failed = [trial.state == TrialState.FAIL for trial in trials]
        if len(failed) < self._max_failures or not all(failed):
            return False
        _stop(study, "failures")
        return True


def _stop(study: Any, reason: str) -> None:
    """Let all workers know; the storage would keep it to itself for a second."""
    study.set_user_attr(STOP, reason)
    study._storage.flush_all_batches()  # noqa: SLF001


def suggest_all(trial: Any, distributions: dict[str, Any]) -> None:
    """Let a trial of Optuna sample every parameter of a space."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    for name, item in distributions.items():
        if isinstance(item, CategoricalDistribution):
            trial.suggest_categorical(name, item.choices)
        elif isinstance(item, IntDistribution):
            trial.suggest_int(name, item.low, item.high, step=item.step, log=item.log)
        else:
            trial.suggest_float(name, item.low, item.high, step=item.step, log=item.log)
