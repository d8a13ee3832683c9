"""Boosted trees: what a training came to, round by round, and the model that predicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace.exceptions import MlRequestError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Kind = Literal["xgboost", "lightgbm"]

History = dict[str, dict[str, list[float]]]

# Metrics of XGBoost of which more is better; all others are errors. LightGBM says it itself.
_MORE_IS_BETTER = ("auc", "aucpr", "pre", "map", "ndcg")


@dataclass
class Progress:
    """The rounds of a training so far, and whether another one is worth it.

    Attributes:
        history: By data (`train`, `validation`) and metric, one value per round.
        patience: Rounds without a better value on `validation` after which training ends; None
            for all rounds.
        more_is_better: Whether the watched metric is a score and not an error.
        rounds: Rounds done.

    Example:
        >>> progress = Progress(patience=2)
        >>> for error in (3.0, 2.0, 2.5, 2.1):
        ...     progress.add([("validation", "rmse", error)])
        >>> progress.best_round(), progress.is_over()
        (2, True)
    """

    history: History = field(default_factory=dict)
    patience: int | None = None
    more_is_better: bool = False
    rounds: int = 0

    def add(self, scores: Iterable[tuple[str, str, float]]) -> None:
        """Note the scores after a round: (data, metric, value)."""
        self.rounds += 1
        for data, metric, value in scores:
            self.history.setdefault(data, {}).setdefault(metric, []).append(float(value))

    def watched(self) -> list[float]:
        """The values that early stopping looks at: the last metric on `validation`."""
        metrics = self.history.get("validation", {})
        return metrics[list(metrics)[-1]] if metrics else []

    def best_round(self) -> int:
        """The round to predict with, counted from 1: the best, or the last without patience."""
        values = self.watched()
        if self.patience is None or not values:
            return self.rounds
        best = np.nanargmax(values) if self.more_is_better else np.nanargmin(values)
        return int(best) + 1

    def is_over(self) -> bool:
        """Whether the best round is as long ago as the patience says."""
        return self.patience is not None and self.rounds - self.best_round() >= self.patience


def more_is_better(metric: str) -> bool:
    """Whether a metric of XGBoost, as in `validation-auc` or `ndcg@5`, is a score.

    Example:
        >>> more_is_better("ndcg@5-"), more_is_better("rmse")
        (True, False)
    """
    return metric.partition("@")[0] in _MORE_IS_BETTER


@dataclass(frozen=True, kw_only=True)
class BoostedModel:
    """The trees of `ml.train_xgboost` or `ml.train_lightgbm`, up to the best round.

    Attributes:
        kind: Which library made them.
        model: The model in the library's own format: XGBoost's binary JSON, or LightGBM's text.
        features: Columns, in the order that the model has them.
        categories: Values of the categorical ones: the place of a value is its code.
        history: By data (`train`, `validation`) and metric, one value per round. LightGBM
            measures `validation` only.
        best_round: Trees that the model has, counted in rounds.
        rows: Rows that were used, by data.
        workers_lost: How often the training went on from its last checkpoint.
        mlflow_run_id: The run that it was logged to, or None.
    """

    kind: Kind
    model: bytes = field(repr=False)
    features: tuple[str, ...]
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    history: History = field(repr=False)
    best_round: int
    rows: Mapping[str, int]
    workers_lost: int = 0
    mlflow_run_id: str | None = None

    def load(self) -> Any:
        """The library's own booster."""
        if self.kind == "lightgbm":
            import lightgbm

            return lightgbm.Booster(model_str=self.model.decode())
        import xgboost

        return xgboost.Booster(model_file=bytearray(self.model))

    def predict(self, frame: pd.DataFrame) -> NDArray[Any]:
        """A prediction for each row of a frame that has the features' columns."""
        matrix = encode(frame, self.features, self.categories)
        booster = self.load()
        if self.kind == "xgboost":
            found: NDArray[Any] = booster.predict(xgboost_matrix(matrix, self))
        else:
            found = np.asarray(booster.predict(matrix))
        return found


def encode(
    frame: pd.DataFrame, features: Sequence[str], categories: Mapping[str, Sequence[str]]
) -> NDArray[np.float32]:
    """Rows as a matrix of numbers: a category becomes its code, an unknown one is missing.

    Raises:
        MlRequestError: A column holds something else than numbers.
    """
    matrix = np.empty((len(frame), len(features)), dtype=np.float32)
    for place, name in enumerate(features):
        column = frame[name]
        if name in categories:
            codes = {value: float(code) for code, value in enumerate(categories[name])}
            column = column.map(codes)
        try:
            matrix[:, place] = column.to_numpy(dtype=np.float32, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise not_a_number(name, str(column.dtype)) from error
    return matrix


def not_a_number(name: str, kind: str) -> MlRequestError:
    """The refusal of a column that trees can't be built from."""
    return MlRequestError(
        problem=f"The column {name!r} has the type {kind}, which is no number.",
        found="Every worker has to give a value the same code, so codes are not made up there.",
        fix=f"name its values: categories={{{name!r}: [...]}}; or leave it out of features",
    )


def xgboost_matrix(
    matrix: Any, model: Any, *, label: Any = None, weight: Any = None, threads: int | None = None
) -> Any:
    """A matrix of `encode` as XGBoost takes it, with the names and types of `model`'s features."""
    import xgboost

    return xgboost.DMatrix(
        matrix,
        label=label,
        weight=weight,
        feature_names=list(model.features),
        feature_types=["c" if name in model.categories else "q" for name in model.features],
        enable_categorical=True,
        nthread=threads,
    )
