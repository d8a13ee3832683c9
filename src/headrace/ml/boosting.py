"""`ml.train_xgboost` and `ml.train_lightgbm`: trees from more rows than one process holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.context import current_context, inside_task
from headrace.exceptions import MlRequestError
from headrace.ml.boosted import BoostedModel, Kind
from headrace.ml.boosting_tracking import log_training
from headrace.ml.boosting_worker import Job, OnRound
from headrace.ml.engine import active_session, choose_backend, slots_of
from headrace.ml.layers import refuse_nested
from headrace.ml.ray_boosting import Crew, train_on_ray
from headrace.ml.threads import threads_per_worker
from headrace.tables import TableRef

if TYPE_CHECKING:
    from ray.data import Dataset

log = logging.getLogger("headrace.ml")

# Parameters that have an argument of their own, or that the workers have to agree on.
_OURS: dict[Kind, dict[str, str]] = {
    "xgboost": {
        "nthread": "the profile's cores",
        "n_jobs": "the profile's cores",
        "num_boost_round": "rounds=",
        "n_estimators": "rounds=",
        "early_stopping_rounds": "early_stopping=",
        "feature_types": "categories=",
        "device": "use_gpu=",
        "gpu_id": "use_gpu=",
    },
    "lightgbm": {
        "num_threads": "the profile's cores",
        "nthread": "the profile's cores",
        "n_jobs": "the profile's cores",
        "num_iterations": "rounds=",
        "num_boost_round": "rounds=",
        "n_estimators": "rounds=",
        "early_stopping_round": "early_stopping=",
        "early_stopping_rounds": "early_stopping=",
        "categorical_feature": "categories=",
        "machines": "workers=",
        "num_machines": "workers=",
        "local_listen_port": "workers=",
        "device": "train_xgboost(use_gpu=True)",
        "device_type": "train_xgboost(use_gpu=True)",
    },
}
_RANKING = ("rank:", "lambdarank", "rank_xendcg")


def train_xgboost(  # noqa: PLR0913 - all but two have a default
    data: Any,
    *,
    label: str,
    validation: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    weight: str | None = None,
    params: Mapping[str, Any] | None = None,
    rounds: int = 100,
    early_stopping: int | None = None,
    workers: int | None = None,
    use_gpu: bool = False,
    checkpoint_every: int = 50,
    checkpoints: str | None = None,
    retries_of_lost: int = 1,
    on_round: OnRound | None = None,
    backend: Literal["ray", "spark"] | None = None,
    track: bool | None = None,
) -> BoostedModel:
    """Train XGBoost's trees with several workers that each hold a share of the rows.

    In a `@ray_task` it runs on Ray Train over a Dataset of the bridge, in a `@spark_task` as
    XGBoost's Spark estimator. Both build the same trees but for the borders of histogram bins.

    Args:
        data: A table (reference, name, path), a Ray Dataset, or on Spark a DataFrame.
        label: Column to predict; a number in each row.
        validation: Data like `data` that each round is measured on.
        features: Columns to predict from; all but `label` and `weight` by default.
        categories: Values of the columns that are texts: the place of a value is its code. Values
            that are not named count as missing.
        weight: Column with the weight of a row.
        params: XGBoost's parameters, such as `{"max_depth": 6, "eta": 0.1}`.
        rounds: Rounds at most, at least 1.
        early_stopping: Rounds without a better value on `validation` after which it ends; the
            model then has the trees up to the best round.
        workers: Training processes; the profile's workers by default, at most its cores.
        use_gpu: One GPU for each worker; never used unless asked for.
        checkpoint_every: Rounds between two checkpoints (Ray), each of which takes up to 2 s.
        checkpoints: Folder in the lake, path or address where they are kept, for a training that
            goes on after its driver was lost (Ray); by default they are removed with the run.
        retries_of_lost: How often it goes on from the last checkpoint after a worker was lost
            (Ray).
        on_round: Called on every worker after each round with its number and the scores by data
            and metric (Ray).
        backend: `ray` or `spark`; the task's engine by default.
        track: Log parameters and each round's scores to MLflow; by default where the task is
            tracked.

    Returns:
        The model, with the history of all rounds.

    Raises:
        MlRequestError: Arguments don't go together, or there are fewer slots than workers.
        NestedLayersError: This is a worker or a trial already.
        WorkersLostError: Workers were lost more often than allowed.
        Exception: What a worker raised, with its number.
    """
    chosen = choose_backend(backend, ("ray", "spark"), what="ml.train_xgboost")
    columns = {"label": label, "weight": weight, "features": features, "categories": categories}
    given = dict(params or {})
    _check("xgboost", given, rounds, early_stopping, checkpoint_every, validation=validation)
    if chosen == "spark":
        from headrace.ml.spark_boosting import train_on_spark

        _refuse_on_spark(checkpoints=checkpoints, on_round=on_round)
        model = train_on_spark(
            data,
            validation,
            columns=columns,
            params=given,
            rounds=rounds,
            patience=early_stopping,
            workers=_workers(workers),
            use_gpu=use_gpu,
            spark=active_session(),
        )
    else:
        model = _train(
            "xgboost",
            data,
            validation,
            columns=columns,
            params={**given, "device": "cuda" if use_gpu else "cpu"},
            rounds=(rounds, early_stopping, checkpoint_every),
            crew=_crew(workers, retries_of_lost, checkpoints, use_gpu=use_gpu),
            on_round=on_round,
        )
    return log_training(model, given, track=track)


def train_lightgbm(  # noqa: PLR0913 - all but two have a default
    data: Any,
    *,
    label: str,
    validation: Any = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    weight: str | None = None,
    params: Mapping[str, Any] | None = None,
    rounds: int = 100,
    early_stopping: int | None = None,
    workers: int | None = None,
    checkpoint_every: int = 50,
    checkpoints: str | None = None,
    retries_of_lost: int = 1,
    on_round: OnRound | None = None,
    track: bool | None = None,
) -> BoostedModel:
    """Train LightGBM's trees with several workers of Ray that each hold a share of the rows.

    Each worker holds all rows of `validation`: LightGBM measures on each one by itself, and all
    have to stop in the same round.

    Args:
        data: A table (reference, name, path) or a Ray Dataset.
        label: Column to predict; a number in each row.
        validation: Data like `data` that each round is measured on.
        features: Columns to predict from; all but `label` and `weight` by default.
        categories: Values of the columns that are texts: the place of a value is its code. Values
            that are not named count as missing.
        weight: Column with the weight of a row.
        params: LightGBM's parameters, such as `{"num_leaves": 31, "learning_rate": 0.1}`.
        rounds: Rounds at most, at least 1.
        early_stopping: Rounds without a better value on `validation` after which it ends; the
            model then has the trees up to the best round.
        workers: Training processes; the profile's workers by default, at most its cores.
        checkpoint_every: Rounds between two checkpoints, each of which takes up to 2 s.
        checkpoints: Folder in the lake, path or address where they are kept, for a training that
            goes on after its driver was lost; by default they are removed with the run.
        retries_of_lost: How often it goes on from the last checkpoint after a worker was lost.
        on_round: Called on every worker after each round with its number and the scores by data
            and metric.
        track: Log parameters and each round's scores to MLflow; by default where the task is
            tracked.

    Returns:
        The model, with the history of all rounds.

    Raises:
        MlRequestError: Arguments don't go together, or there are fewer slots than workers.
        NestedLayersError: This is a worker or a trial already.
        WorkersLostError: Workers were lost more often than allowed.
        Exception: What a worker raised, with its number.
    """
    choose_backend("ray", ("ray",), what="ml.train_lightgbm")
    given = dict(params or {})
    _check("lightgbm", given, rounds, early_stopping, checkpoint_every, validation=validation)
    model = _train(
        "lightgbm",
        data,
        validation,
        columns={"label": label, "weight": weight, "features": features, "categories": categories},
        params={"verbosity": -1, **given},
        rounds=(rounds, early_stopping, checkpoint_every),
        crew=_crew(workers, retries_of_lost, checkpoints, use_gpu=False),
        on_round=on_round,
    )
    return log_training(model, given, track=track)


def _train(
    kind: Kind,
    data: Any,
    validation: Any,
    *,
    columns: dict[str, Any],
    params: dict[str, Any],
    rounds: tuple[int, int | None, int],
    crew: Crew,
    on_round: OnRound | None,
) -> BoostedModel:
    refuse_nested(f"ml.train_{kind}")
    train = _dataset(data)
    kept = {columns["label"], columns["weight"]}
    names = columns["features"] or [name for name in train.columns() if name not in kept]
    threads = threads_per_worker(crew.cpus, crew.workers)
    several = {"tree_learner": "data", "pre_partition": True} if crew.workers > 1 else {}
    own = {"nthread": threads} if kind == "xgboost" else {"num_threads": threads, **several}
    job = Job(
        kind=kind,
        label=columns["label"],
        weight=columns["weight"],
        features=tuple(names),
        categories=columns["categories"] or {},
        params={**params, **own},
        rounds=rounds[0],
        patience=rounds[1],
        checkpoint_every=rounds[2],
        has_validation=validation is not None,
        on_round=on_round,
    )
    return train_on_ray(job, train, None if validation is None else _dataset(validation), crew)


def _dataset(data: Any) -> Dataset:
    from headrace.bridge.read import from_spark

    if isinstance(data, TableRef | str | Path):
        return from_spark(data)
    if type(data).__module__.startswith("ray.data"):
        return data
    raise MlRequestError(
        problem=f"A training on Ray got a {type(data).__name__}.",
        found="A TableRef, a table's name or path, or a ray.data.Dataset.",
        fix="headrace.from_spark(data), or ray.data.from_pandas(data)",
    )


def _check(
    kind: Kind,
    params: Mapping[str, Any],
    rounds: int,
    patience: int | None,
    checkpoint_every: int,
    *,
    validation: Any,
) -> None:
    for name, value in (("rounds", rounds), ("checkpoint_every", checkpoint_every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise MlRequestError(
                problem=f"{name}={value!r} is not possible.",
                found="It has to be a whole number of at least 1.",
                fix=f"{name}=20",
            )
    for name, instead in _OURS[kind].items():
        if name in params:
            raise MlRequestError(
                problem=f"params has {name!r}, which ml.train_{kind} sets itself.",
                found=f"It comes from {instead}.",
                fix=f"leave {name!r} out",
            )
    objective = params.get("objective", "")
    if callable(objective) or str(objective).startswith(_RANKING):
        raise MlRequestError(
            problem=f"ml.train_{kind} has no objective {objective!r:.80}.",
            found="Objectives of the library by name are known; those that rank need whole groups "
            "of rows on one worker.",
            fix="train on one node, with the library's own train()",
        )
    if params.get("tree_method") in ("exact", "gpu_hist"):
        raise MlRequestError(
            problem=f"tree_method={params['tree_method']!r} is not for several workers.",
            found='"hist" and "approx" are.',
            fix='params={"tree_method": "hist"}; use_gpu=True for GPUs',
        )
    if patience is not None and validation is None:
        raise MlRequestError(
            problem="early_stopping needs validation.",
            found="Without data that is not trained on, more rounds always look better.",
            fix="validation=from_spark(table, filter=\"split = 'validation'\")",
        )


def _refuse_on_spark(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise MlRequestError(
                problem=f"{name} is not for a training on Spark.",
                found="A barrier stage of Spark starts anew when it loses a worker.",
                fix='backend="ray", in a @ray_task',
            )


def _workers(given: int | None) -> int:
    if given is not None and (isinstance(given, bool) or given < 1):
        raise MlRequestError(
            problem=f"workers={given!r} is not possible.",
            found="It has to be a whole number of at least 1.",
            fix="workers=2",
        )
    return given or (current_context().workers if inside_task() else 1)


def _crew(
    workers: int | None, retries_of_lost: int, checkpoints: str | None, *, use_gpu: bool
) -> Crew:
    """The workers, if the cluster has room for them.

    Raises:
        MlRequestError: It does not; Ray alone would wait for ever.
    """
    import ray

    cpus, wanted = slots_of("ray"), _workers(workers)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if wanted > cpus:
        raise MlRequestError(
            problem=f"workers={wanted} are more than the cluster has cores.",
            found=f"It has {cpus}; each worker needs one.",
            fix=f"workers={cpus}, or a profile with more cores",
        )
    if use_gpu and wanted > gpus:
        raise MlRequestError(
            problem=f"use_gpu=True needs a GPU for each of {wanted} workers.",
            found=f"The cluster has {gpus}.",
            fix="use_gpu=False, or a profile with gpus = 1",
        )
    return Crew(
        workers=wanted,
        cpus=cpus,
        use_gpu=use_gpu,
        retries_of_lost=retries_of_lost,
        checkpoints=checkpoints,
    )
