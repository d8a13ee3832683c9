"""One worker of a distributed training of trees: its share of the rows, round after round.

It runs inside a worker of Ray Train, which connects the workers of XGBoost or LightGBM.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.exceptions import MlRequestError
from headrace.ml.boosted import Kind, Progress, encode, more_is_better, xgboost_matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

OnRound = Callable[[int, Mapping[str, Mapping[str, float]]], None]

_BATCH_ROWS = 16_384
_MODEL, _PROGRESS = "model", "progress.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all workers have in common.

    Attributes:
        kind: The library.
        label: Column to predict.
        weight: Column with the weight of a row, or None.
        features: Columns to predict from.
        categories: Values of the categorical ones.
        params: The library's own parameters, threads included.
        rounds: Rounds at most.
        patience: Rounds without a better value after which it ends, or None.
        checkpoint_every: Rounds between two checkpoints.
        has_validation: Whether there is data to validate with.
        on_round: Called after each round on every worker, or None.
        tally: An actor that counts the rows of all workers.
    """

    kind: Kind
    label: str
    weight: str | None
    features: tuple[str, ...]
    categories: Mapping[str, Sequence[str]]
    params: dict[str, Any]
    rounds: int
    patience: int | None
    checkpoint_every: int
    has_validation: bool
    on_round: OnRound | None = None
    tally: Any = None

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [*self.features, self.label, *([self.weight] if self.weight else [])]


@dataclass(frozen=True)
class Share:
    """A worker's rows of one data set, ready for a library."""

    matrix: NDArray[np.float32]
    label: NDArray[np.float32]
    weight: NDArray[np.float32] | None


class Tally:
    """Counts rows by data and worker; an actor."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}

    def add(self, data: str, rank: int, rows: int) -> None:
        """Note a worker's rows; a worker that starts again counts once."""
        self._rows[data, rank] = rows

    def rows(self) -> dict[str, int]:
        """Rows of all workers by data."""
        found: dict[str, int] = {}
        for (data, _), rows in self._rows.items():
            found[data] = found.get(data, 0) + rows
        return found


def train_share(config: dict[str, Any]) -> dict[str, Any]:
    """Train with the other workers; what the first one returns is the result."""
    import ray.train

    job: Job = config["job"]
    shares = {"train": load_share(job, "train")}
    if job.has_validation:
        shares["validation"] = load_share(job, "validation")
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        model, progress = None, Progress(patience=job.patience)
    else:
        with checkpoint.as_directory() as folder:
            model = Path(folder, _MODEL).read_bytes()
            progress = Progress(**json.loads(Path(folder, _PROGRESS).read_text()))
    train = _train_xgboost if job.kind == "xgboost" else _train_lightgbm
    final = train(job, shares, model, progress)
    return {"model": final, "progress": asdict(progress), "resumed": checkpoint is not None}


def load_share(job: Job, data: str) -> Share:
    """This worker's rows, encoded batch by batch.

    Raises:
        MlRequestError: A row has no label, or there is no row.
    """
    import ray
    import ray.train

    width = len(job.features)
    parts = [Share(np.empty((0, width), np.float32), *([np.empty(0, np.float32)] * 2))]
    shard = ray.train.get_dataset_shard(data)
    for batch in shard.iter_batches(batch_size=_BATCH_ROWS, batch_format="pandas"):
        # Rows that make the shares equal have nothing in them.
        frame = batch.dropna(how="all")
        label = frame[job.label].to_numpy(dtype=np.float32, na_value=np.nan)
        if not np.isfinite(label).all():
            raise MlRequestError(
                problem=f"A row of {data} has no finite number in its label {job.label!r}.",
                found=f"{int((~np.isfinite(label)).sum())} of {len(label)} rows of a batch.",
                fix=f'leave them out: filter="{job.label} is not null"',
            )
        weight = frame[job.weight].to_numpy(dtype=np.float32) if job.weight else label[:0]
        parts.append(Share(encode(frame, job.features, job.categories), label, weight))
    rank = ray.train.get_context().get_world_rank()
    rows = sum(len(part.label) for part in parts)
    ray.get(job.tally.add.remote(data, rank, rows))
    if not rows:
        raise MlRequestError(
            problem=f"Worker {rank} of the training got no row of {data}.",
            found="There are fewer rows than workers, or none at all.",
            fix="workers=1; or look at the filter of the data",
        )
    return Share(
        np.concatenate([part.matrix for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.weight for part in parts if part.weight is not None])
        if job.weight
        else None,
    )


def _train_xgboost(
    job: Job, shares: Mapping[str, Share], model: bytes | None, progress: Progress
) -> bytes:
    import xgboost

    threads = job.params["nthread"]
    matrices = {
        data: xgboost_matrix(
            share.matrix, job, label=share.label, weight=share.weight, threads=threads
        )
        for data, share in shares.items()
    }
    start = None if model is None else bytearray(model)
    booster = xgboost.Booster(job.params, list(matrices.values()), model_file=start)
    named = [(matrix, data) for data, matrix in matrices.items()]
    # `xgboost.train` counts its rounds from 0 again when it goes on with a model, and would
    # sample the same rows and columns a second time.
    while progress.rounds < job.rounds and not progress.is_over():
        booster.update(matrices["train"], progress.rounds)
        scores = _scores(booster.eval_set(named, progress.rounds))
        progress.more_is_better = more_is_better(scores[-1][1])
        progress.add(scores)
        _after_round(job, progress, lambda: bytes(booster.save_raw("ubj")))
    best = booster[: progress.best_round()] if job.patience else booster
    return bytes(best.save_raw("ubj"))


def _scores(line: str) -> list[tuple[str, str, float]]:
    """`[3]<tab>train-rmse:0.25<tab>validation-rmse:0.31`, as XGBoost tells it, in parts."""
    found = []
    for word in line.split("\t")[1:]:
        name, _, value = word.rpartition(":")
        data, _, metric = name.partition("-")
        found.append((data, metric, float(value)))
    return found


def _train_lightgbm(
    job: Job, shares: Mapping[str, Share], model: bytes | None, progress: Progress
) -> bytes:
    import lightgbm
    import ray.train
    from lightgbm.callback import EarlyStopException
    from ray.train.collective import broadcast_from_rank_zero
    from ray.train.lightgbm import get_network_params

    several = ray.train.get_context().get_world_size() > 1
    params = {**job.params, **(get_network_params() if several else {})}
    train = _lightgbm_data(job, shares["train"], params)
    validation = [
        train.create_valid(share.matrix, label=share.label, weight=share.weight)
        for data, share in shares.items()
        if data == "validation"
    ]
    start = None if model is None else lightgbm.Booster(model_str=model.decode())

    def after(env: Any) -> None:
        scores = [(data, metric, value) for data, metric, value, _ in env.evaluation_result_list]
        if several and job.patience is not None:
            # Each one measures with all rows, but not in the same order of additions: the last
            # digit may differ, and all have to stop in the same round.
            scores = broadcast_from_rank_zero(scores)
        progress.more_is_better = any(more for *_, more in env.evaluation_result_list[-1:])
        progress.add(scores)
        _after_round(job, progress, lambda: env.model.model_to_string(num_iteration=-1).encode())
        if progress.is_over():
            raise EarlyStopException(progress.best_round() - 1, env.evaluation_result_list)

    if progress.rounds < job.rounds and not progress.is_over():
        start = lightgbm.train(
            params,
            train,
            num_boost_round=job.rounds - progress.rounds,
            valid_sets=validation,
            valid_names=["validation"] * len(validation),
            init_model=start,
            callbacks=[after],
        )
    assert start is not None  # noqa: S101 - rounds is at least 1
    text: str = start.model_to_string(num_iteration=progress.best_round())
    return text.encode()


def _lightgbm_data(job: Job, share: Share, params: dict[str, Any]) -> Any:
    import lightgbm

    codes = [place for place, name in enumerate(job.features) if name in job.categories]
    return lightgbm.Dataset(
        share.matrix,
        label=share.label,
        weight=share.weight,
        feature_name=list(job.features),
        categorical_feature=codes,
        params=params,
        free_raw_data=False,
    )


def _after_round(job: Job, progress: Progress, save: Callable[[], bytes]) -> None:
    """Keep a checkpoint when it is time for one, and let the user's function look."""
    if progress.rounds % job.checkpoint_every == 0:
        _report(progress, save)
    if job.on_round is not None:
        last = {
            data: {metric: values[-1] for metric, values in metrics.items()}
            for data, metrics in progress.history.items()
        }
        job.on_round(progress.rounds, last)


def _report(progress: Progress, save: Callable[[], bytes]) -> None:
    import ray.train

    metrics = {"rounds": progress.rounds}
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory(prefix="trees-") as folder:
        Path(folder, _MODEL).write_bytes(save())
        Path(folder, _PROGRESS).write_text(json.dumps(asdict(progress)))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))
