"""`ml.fit_spark`: pipelines and validators of pyspark.ml, tracked, classic or Connect."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.context import current_context
from headrace.exceptions import MlRequestError
from headrace.ml.engine import is_connect, slots_of
from headrace.ml.fit_runs import FitRuns
from headrace.ml.layers import refuse_nested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("headrace.ml")

# What a Connect session can't run, by the start of its module, and what to do instead.
_NEEDS_JVM = {
    "xgboost.spark": "call ml.train_xgboost in a @ray_task: it reads the table that Spark wrote",
    "synapse.ml": "call ml.train_lightgbm in a @ray_task: it reads the table that Spark wrote",
}


@dataclass(frozen=True, kw_only=True)
class SparkFit:
    """What `ml.fit_spark` returns.

    Attributes:
        model: The fitted model: what `estimator.fit` would have returned.
        params: Each parameter map that was tried, by `Class.parameter`; empty without validation.
        metrics: Each map's mean metric over all folds.
        folds: Each map's metric in each fold.
        best: Place of the best map; None without validation.
        mlflow_run_id: The run of the whole, or None when nothing is tracked.
    """

    model: Any = field(repr=False)
    params: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)
    folds: list[list[float]] = field(default_factory=list)
    best: int | None = None
    mlflow_run_id: str | None = None

    @property
    def best_params(self) -> dict[str, Any] | None:
        """The best parameter map."""
        return None if self.best is None else dict(self.params[self.best])


def fit_spark(
    estimator: Any, data: DataFrame, *, parallelism: int | None = None, track: bool | None = None
) -> SparkFit:
    """Fit a pipeline, an estimator, a CrossValidator or a TrainValidationSplit of pyspark.ml.

    A validator gives the same metrics and model as its own `fit`; here each fold with each
    parameter map is an MLflow run below that of the whole, and Ctrl-C ends its Spark jobs.

    Args:
        estimator: Any `pyspark.ml` estimator.
        data: What to fit it on; of a classic or of a Connect session.
        parallelism: Models that are fitted at once; the validator's own where it was set, else
            the profile's cores.
        track: Log to MLflow; by default where the task is tracked.

    Returns:
        The model, and what each parameter map came to.

    Raises:
        MlRequestError: A stage needs the JVM and the session is one of Spark Connect.
        NestedLayersError: This is a worker or a trial already.
        Exception: What an estimator raised, with its fold and parameters as a note.
    """
    refuse_nested("ml.fit_spark")
    refuse_on_connect(estimator, data.sparkSession)
    tracked = current_context().mlflow_run_id is not None if track is None else track
    grid = _grid(estimator)
    runs = None
    if tracked:
        settings = {"estimator": type(estimator).__name__, "param_maps": len(grid or [])}
        runs = FitRuns(f"fit {type(estimator).__name__}", settings)
    ended_well = False
    try:
        with _cancelled_on_error(data.sparkSession) as tag:
            if grid is None:
                found = SparkFit(model=estimator.fit(data))
            else:
                found = _validate(
                    estimator, data, _workers(estimator, parallelism, grid), runs, tag
                )
        ended_well = True
    finally:
        if runs is not None:
            runs.close(ended_well=ended_well)
    return SparkFit(**{**vars(found), "mlflow_run_id": runs.run_id if runs else None})


def refuse_on_connect(estimator: Any, spark: Any) -> None:
    """Return where an estimator can run: not over Spark Connect, if a stage needs the JVM.

    Raises:
        MlRequestError: The session is one of Connect, and a stage can't run there.
    """
    if not is_connect(spark):
        return
    for stage in walk_stages(estimator):
        module = type(stage).__module__
        known = next((fix for name, fix in _NEEDS_JVM.items() if module.startswith(name)), None)
        if known is None and not _has_jvm_class(stage):
            continue
        raise MlRequestError(
            problem=f"{type(stage).__name__} does not run over Spark Connect.",
            found=f"{module} needs the JVM or an RDD, which a Connect session does not have.",
            fix=known
            or 'use an estimator of pyspark.ml, or a profile without connect: engine = "spark"',
        )


def walk_stages(estimator: Any) -> Iterator[Any]:
    """An estimator and all that it is made of: stages of pipelines, what a validator tries."""
    yield estimator
    for name in ("stages", "estimator", "classifier"):
        if not (getattr(estimator, "hasParam", None) and estimator.hasParam(name)):
            continue
        if not estimator.isDefined(name):
            continue
        inner = estimator.getOrDefault(name)
        for stage in inner if isinstance(inner, list) else [inner]:
            yield from walk_stages(stage)


def _has_jvm_class(stage: Any) -> bool:
    """Whether it wraps a class of Scala that is not Spark's own."""
    from pyspark.ml.wrapper import JavaParams

    return isinstance(stage, JavaParams) and not type(stage).__module__.startswith("pyspark.")


def _grid(estimator: Any) -> list[Any] | None:
    """The parameter maps of a validator; None for any other estimator."""
    from pyspark.ml.tuning import CrossValidator, TrainValidationSplit

    if not isinstance(estimator, CrossValidator | TrainValidationSplit):
        return None
    for name in ("estimator", "estimatorParamMaps", "evaluator"):
        if not estimator.isDefined(name):
            raise MlRequestError(
                problem=f"The {type(estimator).__name__} has no {name}.",
                found="It needs an estimator, its parameter maps and an evaluator.",
                fix="CrossValidator(estimator=..., estimatorParamMaps=grid, evaluator=...)",
            )
    return list(estimator.getEstimatorParamMaps())


def _workers(validator: Any, given: int | None, grid: Sequence[Any]) -> int:
    if given is not None and (isinstance(given, bool) or given < 1):
        raise MlRequestError(
            problem=f"parallelism={given!r} fits no model.",
            found="It has to be a whole number of at least 1.",
            fix="parallelism=2",
        )
    own = validator.getParallelism() if validator.isSet("parallelism") else None
    return min(given or own or slots_of("spark"), len(grid))


@contextmanager
def _cancelled_on_error(spark: Any) -> Iterator[str]:
    """A tag for all jobs of the block; an error or Ctrl-C ends those that still run."""
    tag = f"headrace-fit-{uuid.uuid4().hex[:12]}"
    spark.addTag(tag)
    try:
        yield tag
    except BaseException:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


def _validate(
    validator: Any, data: DataFrame, workers: int, runs: FitRuns | None, tag: str
) -> SparkFit:
    from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, TrainValidationSplitModel

    grid, estimator = validator.getEstimatorParamMaps(), validator.getEstimator()
    evaluator, keep = validator.getEvaluator(), validator.getCollectSubModels()
    crosses = isinstance(validator, CrossValidator)
    # The same folds as `validator.fit` would make: its own method, and its own seed.
    parts = validator._kFold(data) if crosses else [_split(validator, data)]  # noqa: SLF001
    metrics, kept = [], []
    for fold, (train, validation) in enumerate(parts):
        with _cached(train), _cached(validation):
            tried = _Fold(estimator, evaluator, train, validation, fold, runs, tag)
            values, models = tried.run(grid, workers, keep=keep)
        metrics.append(values)
        kept.append(models)
    means = [float(value) for value in np.mean(metrics, axis=0)]
    best = int(np.argmax(means) if evaluator.isLargerBetter() else np.argmin(means))
    final = estimator.fit(data, grid[best])
    if crosses:
        spread = [float(value) for value in np.std(metrics, axis=0)]
        model = CrossValidatorModel(final, means, kept if keep else None, spread)
    else:
        model = TrainValidationSplitModel(final, means, kept[0] if keep else None)
    params = [names_of(grid_map) for grid_map in grid]
    if runs is not None:
        runs.finish(params[best], evaluator.getMetricName(), means[best])
    return SparkFit(
        model=validator._copyValues(model),  # noqa: SLF001 - as its own fit does
        params=params,
        metrics=means,
        folds=[list(column) for column in zip(*metrics, strict=True)],
        best=best,
    )


def names_of(param_map: Any) -> dict[str, Any]:
    """A parameter map by `Class.parameter`; two stages of a class are told apart by their uid."""
    short = [f"{param.parent.partition('_')[0]}.{param.name}" for param in param_map]
    full = [f"{param.parent}.{param.name}" for param in param_map]
    names = [name if short.count(name) == 1 else full[place] for place, name in enumerate(short)]
    return dict(zip(names, param_map.values(), strict=True))


def _split(validator: Any, data: DataFrame) -> tuple[DataFrame, DataFrame]:
    from pyspark.sql import functions as sql

    column = f"{validator.uid}_rand"
    drawn = data.select("*", sql.rand(validator.getOrDefault("seed")).alias(column))
    for_validation = drawn[column] >= validator.getTrainRatio()
    return drawn.filter(~for_validation), drawn.filter(for_validation)


@contextmanager
def _cached(frame: DataFrame) -> Iterator[None]:
    frame.cache()
    try:
        yield
    finally:
        frame.unpersist()


@dataclass
class _Fold:
    """All parameter maps on one fold."""

    estimator: Any
    evaluator: Any
    train: DataFrame
    validation: DataFrame
    number: int
    runs: FitRuns | None
    tag: str
    _over: threading.Event = field(default_factory=threading.Event)

    def run(
        self, grid: Sequence[Any], workers: int, *, keep: bool
    ) -> tuple[list[float], list[Any]]:
        """Metrics in the maps' order, and the models where they are kept."""
        spark = self.train.sparkSession
        values, models = [0.0] * len(grid), [None] * len(grid)
        with ThreadPoolExecutor(workers, thread_name_prefix="headrace-fit") as pool:
            waiting: dict[Future[Any], int] = {
                pool.submit(self._in_thread(spark, place, grid[place])): place
                for place in range(len(grid))
            }
            try:
                for done in as_completed(waiting):
                    place = waiting[done]
                    values[place], model = done.result()
                    models[place] = model if keep else None
            except BaseException:
                self._over.set()
                spark.interruptTag(self.tag)
                raise
        return values, models

    def _in_thread(self, spark: Any, place: int, param_map: Any) -> Callable[[], Any]:
        def work() -> Any:
            if self._over.is_set():
                return None
            # Tags belong to a thread.
            spark.addTag(self.tag)
            try:
                return self._try(place, param_map)
            finally:
                spark.removeTag(self.tag)

        return work

    def _try(self, place: int, param_map: Any) -> tuple[float, Any]:
        names = names_of(param_map)
        tags = {"fold": self.number, "param_map": place}
        run_id = (
            self.runs.begin(f"fold {self.number}, map {place}", names, tags) if self.runs else None
        )
        try:
            model = self.estimator.fit(self.train, param_map)
            value = float(self.evaluator.evaluate(model.transform(self.validation, param_map)))
        except Exception as error:
            error.add_note(f"Raised in fold {self.number} with {names}.")
            if self.runs:
                self.runs.end(run_id, error=error)
            raise
        if self.runs:
            self.runs.end(run_id, metric=(self.evaluator.getMetricName(), value))
        return value, model
