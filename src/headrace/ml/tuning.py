"""`ml.tune`: one study of Optuna, its trials on local processes, Spark or Ray."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from headrace.context import current_context
from headrace.exceptions import DataTooLargeError, MlRequestError
from headrace.ml.driver import Driver
from headrace.ml.engine import active_session, choose_backend, is_connect, slots_of
from headrace.ml.layers import refuse_nested
from headrace.ml.mlflow_study import MlflowStudyDriver
from headrace.ml.parallelism import advise_parallelism
from headrace.ml.ray_tune import TuneDriver
from headrace.ml.slots import LocalSlots, RaySlots, Slots, SparkSlots
from headrace.ml.spaces import Space, read_space
from headrace.ml.studies import best_of, end_study_run, open_study
from headrace.ml.threads import threads_per_worker
from headrace.ml.trial_ends import Callback, Rules
from headrace.ml.trial_runs import TrialRuns
from headrace.ml.tune_checks import check_mlflow_spark, check_ray_tune, check_study
from headrace.ml.tune_result import TuneResult

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

log = logging.getLogger("headrace.ml")

_BACKENDS = ("local", "spark", "ray")
# Other people's drivers, and the engine that they run on.
_ENGINES = {"ray_tune": "ray", "mlflow_spark": "spark"}
_LARGEST_CODE_MIB = 16
_MIB = 2**20


def tune(  # noqa: PLR0913 - all but two have a default, and a study has that many sides
    objective: Callable[[Any], Any],
    space: Any = None,
    *,
    n_trials: int | None = None,
    timeout_s: float | None = None,
    parallelism: int | None = None,
    max_consecutive_failures: int | None = 10,
    sampler: BaseSampler | None = None,
    pruner: BasePruner | None = None,
    direction: Literal["minimize", "maximize"] = "minimize",
    seed: int | None = None,
    deterministic: bool = False,
    retries_of_lost: int = 0,
    callbacks: Sequence[Callback] = (),
    data: Any = None,
    max_data_mib: int = 256,
    name: str | None = None,
    storage: Any = None,
    resume: bool = False,
    backend: Literal["local", "spark", "ray", "ray_tune", "mlflow_spark"] | None = None,
    scheduler: Any = None,
    track: bool | None = None,
) -> TuneResult:
    """Search for the parameters with the best value, in one study of Optuna.

    The study lives on the driver: it asks its sampler for a trial whenever a worker is free, and
    is told how it ended. Workers are processes of this machine, Spark tasks or Ray tasks, and the
    study is the same on each. A trial that hangs ends with the deadline, one whose worker dies is
    told as failed, and nothing runs on after the call.

    Args:
        objective: Called with a trial on a worker; returns the value. It has `params`, `suggest_*`,
            `report`, `should_prune`, `set_user_attr`, `study.stop()`, and `data`. With a Hyperopt
            space it is called with the parameters, as by `fmin`.
        space: Distributions by parameter, a Hyperopt space, or None: then the objective suggests.
        n_trials: Trials of the whole study, those before a resume included.
        timeout_s: Deadline of the study in seconds. Trials that still run then are stopped.
        parallelism: Trials at once; the profile's cores by default, at most a quarter of
            `n_trials`.
        max_consecutive_failures: Failures in a row that stop the study; None for no bound.
        sampler: `TPESampler` by default.
        pruner: `MedianPruner` by default.
        direction: Which value is best.
        seed: Seed of the default sampler. Reproducible at parallelism 1, and at any with
            `deterministic`.
        deterministic: Ask for one batch of trials, wait for all of it, then tell in order. Needs
            a `space`.
        retries_of_lost: How often a trial is tried again whose worker was lost.
        callbacks: Called on the driver with the study and each trial that ended.
        data: Sent to each worker once; `trial.data` has it.
        max_data_mib: Size of `data` (pickled) above which it is refused.
        name: The study's name.
        storage: Where the study is kept: a database's URL, `"mlflow"`, an Optuna storage, or None
            for this process's memory.
        resume: Go on with the study `name` in `storage`. Trials that a crash has left are failed.
        backend: `local`, `spark` or `ray`; the task's engine by default. `ray_tune` runs trials in
            Ray Tune, for its schedulers; `mlflow_spark` in MLflow's MlflowSparkStudy.
        scheduler: Ray Tune's, such as `ASHAScheduler()`; only with `ray_tune`.
        track: Log to MLflow: a run for the study, one below it for each trial. By default where
            the task is tracked.

    Returns:
        The best so far, also when the deadline came before any trial had finished.

    Raises:
        MlRequestError: Arguments don't go together.
        NestedLayersError: This is a worker or a trial already.
        DataTooLargeError: `data`, or what the objective brings along, is too large to be copied.
        WorkersLostError: Workers were lost again and again.
        Exception: The objective's own error, when it stopped the study before any trial finished.
    """
    refuse_nested("ml.tune")
    engine = choose_backend(_ENGINES.get(str(backend), backend), _BACKENDS, what="ml.tune")
    chosen = str(backend) if backend in _ENGINES else engine
    if chosen == "mlflow_spark" and storage is None:
        storage = "mlflow"
    found = read_space(space)
    slots = slots_of(engine)
    workers = _parallelism(parallelism, slots, n_trials)
    check_study(n_trials, timeout_s, deterministic=deterministic, space=found, pruner=pruner)
    given = {
        "pruner": pruner,
        "deterministic": deterministic,
        "retries_of_lost": retries_of_lost,
        "callbacks": callbacks,
        "scheduler": scheduler,
    }
    _check_backend(chosen, found, n_trials, storage, given)
    for advice in advise_parallelism(workers, slots=slots, n_trials=n_trials):
        log.warning(advice)
    code, packed = _packed(objective, found), _packed_data(data, max_data_mib)
    study = open_study(
        name=name,
        storage=storage,
        direction=direction,
        sampler=sampler,
        pruner=pruner,
        seed=seed,
        parallel=workers > 1,
        resume=resume,
    )
    tracked = current_context().mlflow_run_id is not None if track is None else track
    runs = None
    if tracked and storage != "mlflow":
        settings = {"backend": chosen, "parallelism": workers, "n_trials": n_trials, "seed": seed}
        runs = TrialRuns(study, {**settings, "timeout_s": timeout_s, "direction": direction})
    threads = threads_per_worker(current_context().cores if chosen == "local" else slots, workers)
    job = {
        "objective": code,
        "data": packed,
        "threads": threads,
        "env": _tracking_variables() if tracked else {},
    }
    rules = Rules(
        n_trials=None if n_trials is None else max(0, n_trials - study.finished()),
        timeout_s=timeout_s,
        parallelism=workers,
        max_failures=max_consecutive_failures,
        retries_of_lost=retries_of_lost,
        deterministic=deterministic,
        distributions=found.distributions,
        callbacks=callbacks,
    )
    driver = _driver(chosen, study, job, rules, runs, data=data, scheduler=scheduler)
    ended_well = False
    try:
        stopped_by = driver.run()
        ended_well = True
    finally:
        best = best_of(study)
        if runs is not None:
            runs.close(best, ended_well=ended_well)
        elif storage == "mlflow":
            end_study_run(study, ended_well=ended_well)
    if best is None and stopped_by == "failures":
        _raise_first(driver)
    run_id = study.run_id if storage == "mlflow" else runs.run_id if runs else None
    result = TuneResult(study=study, best=best, stopped_by=stopped_by, mlflow_run_id=run_id)
    log.info("%s", result)
    return result


def _parallelism(given: int | None, slots: int, n_trials: int | None) -> int:
    if given is None:
        return max(1, min(slots, slots if n_trials is None else n_trials // 4))
    if given < 1:
        raise MlRequestError(
            problem=f"parallelism={given} runs no trial.",
            found=f"There are {slots} slots.",
            fix=f"parallelism={slots}",
        )
    return given


def _check_backend(
    chosen: str, space: Space, n_trials: int | None, storage: Any, given: dict[str, Any]
) -> None:
    if chosen == "ray_tune":
        check_ray_tune(space=space, given=given)
    elif chosen == "mlflow_spark":
        check_mlflow_spark(n_trials=n_trials, storage=storage, given=given)
    elif given["scheduler"] is not None:
        raise MlRequestError(
            problem=f'scheduler does not go with backend="{chosen}".',
            found="Schedulers are Ray Tune's; here a pruner of Optuna ends trials early.",
            fix='backend="ray_tune", or pruner=optuna.pruners.SuccessiveHalvingPruner()',
        )


def _driver(
    chosen: str,
    study: Any,
    job: dict[str, Any],
    rules: Rules,
    runs: TrialRuns | None,
    *,
    data: Any,
    scheduler: Any,
) -> Driver | TuneDriver | MlflowStudyDriver:
    """Who runs the trials."""
    if chosen == "ray_tune":
        import ray

        kept = None if data is None else ray.put(data)
        plain = {**job, "data": None}
        return TuneDriver(study, plain, kept, rules, runs, scheduler)
    if chosen == "mlflow_spark":
        spark = active_session()
        broadcast = None if data is None else _context_of(spark).broadcast(data)
        return MlflowStudyDriver(study, {**job, "data": None}, broadcast, rules, spark)
    places = _places(chosen, data, job["threads"])
    sent = None if places.sends_data else job["data"]
    return Driver(study, places, {**job, "data": sent}, rules, runs)


def _packed(objective: Callable[[Any], Any], space: Space) -> bytes:
    import cloudpickle

    code: bytes = cloudpickle.dumps(space.adapt(objective) if space.adapt else objective)
    if len(code) > _LARGEST_CODE_MIB * _MIB:
        raise DataTooLargeError(
            what="The objective, with what it refers to,",
            size_mib=len(code) // _MIB,
            limit_mib=_LARGEST_CODE_MIB,
        )
    return code


def _packed_data(data: Any, limit_mib: int) -> bytes | None:
    if data is None:
        return None
    import cloudpickle

    packed: bytes = cloudpickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL)
    if len(packed) > limit_mib * _MIB:
        size = -(-len(packed) // _MIB)
        raise DataTooLargeError(what="data", size_mib=size, limit_mib=limit_mib)
    return packed


def _places(backend: str, data: Any, threads: int) -> Slots:
    if backend == "spark":
        spark = active_session()
        if data is not None:
            _context_of(spark)
        return SparkSlots(spark, data)
    return RaySlots(data, threads) if backend == "ray" else LocalSlots()


def _context_of(spark: Any) -> Any:
    """The SparkContext that broadcasts data."""
    if is_connect(spark):
        raise MlRequestError(
            problem="ml.tune(data=...) can't broadcast over Spark Connect.",
            found="A Connect session has no SparkContext.",
            fix="read the data from a table in the objective: read_arrow(table)",
        )
    return spark.sparkContext


def _tracking_variables() -> dict[str, str]:
    """What lets an objective's own MLflow calls find the server."""
    import mlflow

    known = {"MLFLOW_TRACKING_URI": mlflow.get_tracking_uri()}
    return known | {
        name: value
        for name, value in os.environ.items()
        if name.startswith("MLFLOW_") and name != "MLFLOW_RUN_ID"
    }


def _raise_first(driver: Driver | TuneDriver | MlflowStudyDriver) -> None:
    """Raise the objective's own error, with its trial."""
    if driver.first_error is None:
        return
    number, told = driver.first_error
    error = pickle.loads(told["error"]) if told["error"] else None  # noqa: S301 - from our worker
    if not isinstance(error, Exception):
        error = RuntimeError(f"{told['type']}: {told['message']}")
    error.add_note(f"Raised in trial {number}, on a worker:\n{told['traceback']}")
    raise error
