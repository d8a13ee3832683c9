"""XGBoost on Ray Train: every worker holds its share of the flights, all build the same trees."""

import tempfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.exceptions import UserError, closest, lines
from tasks.feature_matrix import (
    FEATURES,
    TARGET,
    Vocabulary,
    encode_features,
    feature_types,
)

if TYPE_CHECKING:
    import ray.data
    import xgboost

_LIMITS = {"rounds": (1, 5_000), "max_depth": (1, 16), "learning_rate": (0.001, 1.0)}
_OBJECTIVES = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror")
_SPLITS = ("train", "validation")
_PATIENCE = 25
_BATCH_ROWS = 16_384


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """What a user may want to sweep.

    Attributes:
        seed: Seed of the sampling of rows and columns.
        rounds: Trees at most, 1 to 5,000; training stops early when validation stops improving.
        max_depth: Depth of a tree, 1 to 16.
        learning_rate: Share of its prediction that each tree adds, 0.001 to 1.
        objective: What the trees minimise, in XGBoost's words: `reg:squarederror`,
            `reg:absoluteerror` or `reg:pseudohubererror`.
    """

    seed: int = 7
    rounds: int = 300
    max_depth: int = 8
    learning_rate: float = 0.06
    objective: str = _OBJECTIVES[0]

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            whole = isinstance(least, int)
            number = isinstance(value, int if whole else (int, float))
            if isinstance(value, bool) or not number or not least <= value <= most:
                kind = "a whole number" if whole else "a number"
                raise UserError(
                    message=lines(
                        f"{name}={value!r} is not possible.",
                        f"It has to be {kind} from {least} to {most}.",
                        f"for example {name}={getattr(type(self), name)}",
                    )
                )
        if self.objective not in _OBJECTIVES:
            near = closest(self.objective, _OBJECTIVES) or _OBJECTIVES[0]
            raise UserError(
                message=lines(
                    f"objective={self.objective!r} is not possible.",
                    f"It has to be one of {', '.join(_OBJECTIVES)}.",
                    f"objective={near}",
                )
            )

    def parameters(self, *, threads: int) -> dict[str, Any]:
        """The settings in XGBoost's words, with those that are the same for all models."""
        return {
            "objective": self.objective,
            "tree_method": "hist",
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "subsample": 0.7,
            "colsample_bytree": 0.5,
            "min_child_weight": 100,
            "nthread": threads,
        }


@dataclass(frozen=True)
class TrainedTrees:
    """The trees up to the best round, and the error of each round.

    Attributes:
        model: The booster in XGBoost's binary JSON.
        history: RMSE by round for `train` and `validation`, in minutes.
    """

    model: bytes
    history: dict[str, list[float]]

    def best_round(self) -> int:
        """The round with the lowest error on validation, counted from 1."""
        return int(np.argmin(self.history["validation"])) + 1

    def load(self) -> "xgboost.Booster":
        """The booster, ready to predict."""
        import xgboost

        return xgboost.Booster(model_file=bytearray(self.model))


def train_trees(
    flights: "ray.data.Dataset",
    vocabulary: Vocabulary,
    settings: TreeSettings,
    *,
    workers: int,
    cores: int,
) -> TrainedTrees:
    """Train on the split `train` until the error on `validation` stops falling.

    Args:
        flights: Rows with `split`, the features and the target.
        vocabulary: Values of the categorical features.
        settings: Rounds, depth and so on.
        workers: Training processes.
        cores: CPU cores of all workers together.
    """
    import ray.train
    from ray.data import ExecutionOptions
    from ray.train.xgboost import XGBoostTrainer

    config = {
        "parameters": settings.parameters(threads=max(1, cores // workers)),
        "rounds": settings.rounds,
        "vocabulary": dict(vocabulary),
    }
    with tempfile.TemporaryDirectory(prefix="trees-") as folder:
        trainer = XGBoostTrainer(
            _train_share,
            train_loop_config=config,
            datasets={"flights": flights},
            # Workers book half of the cores: they wait while the other half reads for them.
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers, resources_per_worker={"CPU": cores / workers / 2}
            ),
            # The same share for each worker on every run, so that a seed gives one model.
            dataset_config=ray.train.DataConfig(
                execution_options=ExecutionOptions(preserve_order=True)
            ),
            run_config=ray.train.RunConfig(name="trees", storage_path=folder),
        )
        return TrainedTrees(**trainer.fit().return_value)


def _train_share(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker does; Ray Train connects the workers of XGBoost. The first one's counts."""
    import xgboost

    shares = _load_share(config["vocabulary"])
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        config["parameters"],
        shares["train"],
        num_boost_round=config["rounds"],
        evals=[(matrix, split) for split, matrix in shares.items()],
        evals_result=history,
        verbose_eval=False,
        callbacks=[xgboost.callback.EarlyStopping(rounds=_PATIENCE, save_best=True)],
    )
    rmse = {name: [float(error) for error in scores["rmse"]] for name, scores in history.items()}
    return asdict(TrainedTrees(model=bytes(booster.save_raw("ubj")), history=rmse))


def _load_share(vocabulary: Vocabulary) -> "dict[str, xgboost.DMatrix]":
    """This worker's share of both splits, encoded batch by batch."""
    import ray.train

    # An empty part at the start: a share of a small table may have no row of a split.
    nothing = np.empty((0, len(FEATURES)), np.float32), np.empty(0, np.float32)
    parts = {split: [nothing] for split in _SPLITS}
    shard = ray.train.get_dataset_shard("flights")
    for batch in shard.iter_batches(batch_size=_BATCH_ROWS, batch_format="pandas"):
        for split, found in parts.items():
            rows = batch[batch["split"] == split]
            target = rows[TARGET].to_numpy(dtype=np.float32)
            found.append((encode_features(rows, vocabulary), target))
    return {
        split: tree_matrix(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
        for split, found in parts.items()
    }


def tree_matrix(features: Any, target: Any = None) -> "xgboost.DMatrix":
    """Encoded features as XGBoost takes them, with names and types."""
    import xgboost

    return xgboost.DMatrix(
        features,
        label=target,
        feature_names=list(FEATURES),
        feature_types=feature_types(),
        enable_categorical=True,
    )
