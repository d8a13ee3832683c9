"""Distributed training of trees on Ray Train: start it, go on after a lost worker, end it."""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.bridge.staging import new_staging_table
from headrace.context import current_context
from headrace.delta.location import filesystem_path, normal_uri, open_filesystem
from headrace.exceptions import HeadraceError, MlRequestError, WorkersLostError
from headrace.ml.boosted import BoostedModel, Progress, not_a_number
from headrace.ml.boosting_worker import Job, Tally, train_share

if TYPE_CHECKING:
    from ray.data import Dataset

log = logging.getLogger("headrace.ml")

# What the workers that are left say about one that was killed.
_TORN = ("socket", "connection", "rabit", "collective", "tracker", "network")
_MOST_STARTS = 5
# Parameters that may change when a training goes on: how many workers, with how many threads.
_OF_PLACE = ("nthread", "num_threads", "device", "tree_learner", "pre_partition")
_ABORT_S = 30


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The workers of a training.

    Attributes:
        workers: How many.
        cpus: CPU cores of the cluster that are theirs, all together.
        use_gpu: Whether each has a GPU.
        retries_of_lost: How often the training goes on after it lost a worker.
        checkpoints: Folder or address of the checkpoints; None for one of this run.
    """

    workers: int
    cpus: int
    use_gpu: bool
    retries_of_lost: int
    checkpoints: str | None


def train_on_ray(job: Job, train: Dataset, validation: Dataset | None, crew: Crew) -> BoostedModel:
    """Train until the last round, or until `validation` stops getting better.

    Raises:
        MlRequestError: The data has columns or rows that can't be used.
        WorkersLostError: Workers were lost more often than allowed.
        Exception: What a worker raised, with its number and traceback as a note.
    """
    import ray

    data = {"train": _padded(_checked(train, job), crew.workers)}
    if validation is not None:
        given = _checked(validation, job)
        # Workers of LightGBM measure by themselves, so that each needs all rows.
        data["validation"] = given if _measures_alone(job) else _padded(given, crew.workers)
    tally = ray.remote(num_cpus=0)(Tally).remote()
    place = _place(crew.checkpoints)
    if crew.checkpoints is not None:
        _check_same(job, crew.checkpoints, place)
    lost = 0
    try:
        while True:
            try:
                told = _fit(replace(job, tally=tally), data, crew, place)
                break
            except _LostWorkerError as error:
                lost += 1
                if lost > crew.retries_of_lost:
                    raise WorkersLostError(
                        what=f"ml.train_{job.kind}", lost=lost, reason=error.reason
                    ) from error.__cause__
                log.warning("a worker of the training is gone (%s); it goes on", error.reason)
        rows = ray.get(tally.rows.remote())
    finally:
        ray.kill(tally)
    if _measures_alone(job) and "validation" in rows:
        rows["validation"] //= crew.workers
    progress = Progress(**told["progress"])
    return BoostedModel(
        kind=job.kind,
        model=told["model"],
        features=job.features,
        categories=job.categories,
        history=progress.history,
        best_round=progress.best_round(),
        rows=rows,
        workers_lost=lost,
    )


class _LostWorkerError(Exception):
    """A worker's process is gone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class _Place:
    """Where checkpoints are kept, as Ray wants to be told."""

    path: str
    filesystem: Any


def _place(checkpoints: str | None) -> _Place:
    context = current_context()
    address = context.table_uri(checkpoints) if checkpoints else new_staging_table()
    address = normal_uri(address)
    if "://" not in address:
        return _Place(address, None)
    return _Place(filesystem_path(address), open_filesystem(address, context.storage))


def _check_same(job: Job, name: str, place: _Place) -> None:
    """Return where the checkpoints are those of this training, or there are none yet.

    Raises:
        MlRequestError: They are those of another one.
    """
    from pyarrow import fs

    wanted = {
        "kind": job.kind,
        "label": job.label,
        "weight": job.weight,
        "features": list(job.features),
        "categories": {key: list(values) for key, values in job.categories.items()},
        "params": {key: str(job.params[key]) for key in sorted(job.params) if key not in _OF_PLACE},
    }
    filesystem = place.filesystem or fs.LocalFileSystem()
    path = f"{place.path}/training.json"
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        filesystem.create_dir(place.path, recursive=True)
        with filesystem.open_output_stream(path) as file:
            file.write(json.dumps(wanted).encode())
        return
    with filesystem.open_input_file(path) as file:
        found = json.loads(file.read())
    changed = [key for key, value in wanted.items() if found.get(key) != value]
    if changed:
        raise MlRequestError(
            problem=f"checkpoints={name!r} has those of another training.",
            found=f"It had another {changed[0]}: {found.get(changed[0])!r:.200}.",
            fix="another folder, or remove this one",
        )


def _measures_alone(job: Job) -> bool:
    return job.kind == "lightgbm"


def _checked(data: Dataset, job: Job) -> Dataset:
    """Only the columns that are needed, if they are there and can be used.

    Raises:
        MlRequestError: One is missing, or no number.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    schema = data.schema()
    known = dict(zip(schema.names, schema.types, strict=True)) if schema is not None else {}
    missing = [name for name in job.columns if name not in known]
    if missing:
        raise MlRequestError(
            problem=f"The data has no column {missing[0]!r}.",
            found=f"It has {', '.join(known) or 'no columns'}.",
            fix="name the label and the features as the table does",
        )
    numbers = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    for name in job.columns:
        kind = known[name]
        # Blocks that are not Arrow's tell NumPy's types; the workers look at those.
        is_known = isinstance(kind, pa.DataType) and name not in job.categories
        if is_known and not any(test(kind) for test in numbers):
            raise not_a_number(name, str(kind))
    return data.select_columns(job.columns)


def _padded(data: Dataset, workers: int) -> Dataset:
    """With rows of nothing at the end: Ray Train cuts there to make the shares equal."""
    import pyarrow as pa
    import ray.data

    if workers == 1:
        return data
    schema = data.schema().base_schema
    if not isinstance(schema, pa.Schema):
        return data
    nothing = {field.name: pa.nulls(workers - 1, field.type) for field in schema}
    return data.union(ray.data.from_arrow(pa.table(nothing, schema=pa.schema(list(schema)))))


def _fit(job: Job, data: dict[str, Dataset], crew: Crew, place: _Place) -> dict[str, Any]:
    """One start of Ray Train; it goes on from the newest checkpoint in its folder."""
    import ray.train
    from ray.data import ExecutionOptions

    if job.kind == "xgboost":
        from ray.train.xgboost import XGBoostTrainer as Trainer
    else:
        from ray.train.lightgbm import LightGBMTrainer as Trainer
    # Workers book half of the cores: they wait while the other half reads for them.
    share = crew.cpus / crew.workers / 2
    trainer = Trainer(
        train_share,
        train_loop_config={"job": job},
        datasets=data,
        scaling_config=ray.train.ScalingConfig(
            num_workers=crew.workers,
            use_gpu=crew.use_gpu,
            resources_per_worker={
                "CPU": share if share < 1 else int(share),
                **({"GPU": 1} if crew.use_gpu else {}),
            },
        ),
        # In order, and not by where a block lies: a seed gives the same shares on every run.
        dataset_config=ray.train.DataConfig(
            datasets_to_split=["train"] if _measures_alone(job) else "all",
            execution_options=ExecutionOptions(preserve_order=True),
            enable_shard_locality=False,
        ),
        run_config=ray.train.RunConfig(
            name=f"{job.kind}-training",
            storage_path=place.path,
            storage_filesystem=place.filesystem,
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
            # Ray would start again after the user's own errors too; -1 is for ever.
            failure_config=ray.train.FailureConfig(
                max_failures=0, controller_failure_limit=_MOST_STARTS
            ),
        ),
    )
    controllers: list[Any] = []
    # Ray would take Ctrl-C for itself, and keep it afterwards.
    trainer._register_sigint_handler = controllers.append  # noqa: SLF001
    try:
        told: dict[str, Any] = trainer.fit().return_value
    except KeyboardInterrupt:
        _abort(controllers)
        raise
    except ray.train.TrainingFailedError as error:
        _raise_cause(error)
        raise
    return told


def _abort(controllers: list[Any]) -> None:
    """End all workers of a training that was interrupted."""
    import ray

    for controller in controllers:
        with contextlib.suppress(Exception):
            ray.get(controller.abort.remote(), timeout=_ABORT_S)
        with contextlib.suppress(Exception):
            ray.kill(controller)


def _raise_cause(error: Any) -> None:
    """Raise what went wrong without Ray's wrapping, or that a worker is gone."""
    failures = dict(getattr(error, "worker_failures", {}))
    for rank, failure in failures.items():
        if _is_gone(failure):
            text = str(getattr(failure, "health_check_failure", failure)).strip()
            reason = next((line for line in text.splitlines() if line.strip()), "no word")
            raise _LostWorkerError(f"worker {rank}: {reason.strip()[:200]}") from error
    for rank, failure in failures.items():
        # Ray wraps the user's own error, or hands it on as it is.
        cause: Any = getattr(failure, "_base_exc", failure)
        if type(cause).__name__ in ("XGBoostError", "LightGBMError") and any(
            word in str(cause).lower() for word in _TORN
        ):
            continue
        if not isinstance(cause, HeadraceError):
            text = getattr(failure, "_traceback_str", "".join(traceback.format_exception(cause)))
            cause.add_note(f"Raised in worker {rank} of the training:\n{text}")
        raise cause from None
    if failures:
        rank, failure = next(iter(failures.items()))
        said = str(getattr(failure, "_base_exc", failure)).strip().splitlines()
        raise _LostWorkerError(f"worker {rank} lost another one: {''.join(said[-1:])}") from error


def _is_gone(failure: Any) -> bool:
    """Whether a worker's process is dead, or does not answer any more."""
    from ray.exceptions import RayActorError
    from ray.train.v2._internal.exceptions import (
        WorkerHealthCheckFailedError,
        WorkerHealthCheckTimeoutError,
    )

    gone = (RayActorError, WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError)
    return isinstance(failure, gone)
