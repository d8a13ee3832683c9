"""The features to a registered model of arrival delay, measured against two baselines."""

from typing import TYPE_CHECKING, Any

from headrace import TableRef, TaskContext, from_spark, ray_task, read_arrow
from headrace.exceptions import UserError, lines
from tasks.boosted_trees import TrainedTrees, TreeSettings, train_trees, tree_matrix
from tasks.delay_baselines import predict_linear, predict_mean
from tasks.delay_charts import (
    draw_error_by,
    draw_importance,
    draw_learning,
    draw_predicted_against_actual,
)
from tasks.delay_metrics import measure_delays
from tasks.delay_registry import MODEL_NAME, register_model
from tasks.feature_matrix import (
    CATEGORIES,
    FEATURES,
    TARGET,
    Vocabulary,
    build_vocabulary,
    encode_features,
)

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = [*FEATURES, TARGET]
_EXAMPLE_ROWS = 5


@ray_task(profile="train")
def train_delay_model(
    features: TableRef,
    seed: int = 7,
    rounds: int = 300,
    max_depth: int = 8,
    learning_rate: float = 0.06,
    objective: str = "reg:squarederror",
    *,
    context: TaskContext,
) -> dict[str, Any]:
    """Train a model of the arrival delay in minutes, measure it, and register it.

    The trees train on the split `train` and stop by `validation`. They, the mean and a linear
    model are measured on `test`. The MLflow run gets parameters, the error of each round, the
    metrics of all three, and plots.

    Args:
        features: The table of `build_features`.
        seed: Seed of the sampling of rows and columns.
        rounds: Trees at most, 1 to 5,000.
        max_depth: Depth of a tree, 1 to 16.
        learning_rate: Share of its prediction that each tree adds, 0.001 to 1.
        objective: What the trees minimise: `reg:squarederror`, `reg:absoluteerror` or
            `reg:pseudohubererror`.
        context: The task's context.

    Returns:
        `name`, `version` and `uri` of the registered model; `metrics` by model (`model`, `linear`,
        `mean`) and `beats_baselines`; `importance` by feature; `mean_delay`; `trees`, `train_rows`
        and `features`.

    Raises:
        UserError: A parameter is out of its range, or a split is empty.
    """
    settings = TreeSettings(
        seed=seed,
        rounds=rounds,
        max_depth=max_depth,
        learning_rate=learning_rate,
        objective=objective,
    )
    _check_splits(features)
    frame = _read_split(features, "train")
    vocabulary = build_vocabulary({name: frame[name].unique() for name in CATEGORIES})
    trees = train_trees(
        from_spark(features, columns=["split", *_COLUMNS], filter="split <> 'test'"),
        vocabulary,
        settings,
        workers=context.workers,
        cores=context.cores,
    )
    context.logger.info("trained %d trees, the best is %d", _rounds(trees), trees.best_round())
    test = _read_split(features, "test")
    compared = _predict_all(trees, vocabulary, frame, test)
    metrics = {name: measure_delays(test[TARGET], test[name]) for name in compared}
    others = [metrics[name]["rmse"] for name in compared if name != "model"]
    beats = metrics["model"]["rmse"] < min(others)
    for name, values in metrics.items():
        context.logger.info("%s: RMSE %.2f min, R2 %.3f", name, values["rmse"], values["r2"])
    if not beats:
        context.logger.warning("the model does not beat its baselines on the test flights")
    importance = _importance(trees)
    _log_training(settings, trees, metrics)
    _log_plots(trees, test, importance)
    tags = {"features": str(features), "beats_baselines": str(beats).lower()}
    version = register_model(trees, vocabulary, test.head(_EXAMPLE_ROWS), tags)
    return {
        "name": MODEL_NAME,
        "version": version,
        "uri": f"models:/{MODEL_NAME}/{version}",
        "metrics": metrics,
        "beats_baselines": beats,
        "importance": importance,
        "mean_delay": float(test["mean"].iloc[0]),
        "train_rows": len(frame),
        "trees": trees.best_round(),
        "features": str(features),
    }


def _check_splits(features: TableRef) -> None:
    """Stop when a split is empty, as it may be with the flights of a few days."""
    found = read_arrow(features, columns=["split"])["split"].unique().to_pylist()
    missing = [split for split in ("train", "validation", "test") if split not in found]
    if missing:
        raise UserError(
            message=lines(
                f"{features} has no flight in the split {missing[0]!r}.",
                f"Found: {', '.join(sorted(found)) or 'no flights at all'}; days are split, not "
                "flights.",
                "load the flights of more days, or choose another seed",
            )
        )


def _read_split(features: TableRef, split: str) -> "pd.DataFrame":
    table = read_arrow(features, columns=_COLUMNS, filter=f"split = '{split}'")
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _predict_all(
    trees: TrainedTrees, vocabulary: Vocabulary, train: "pd.DataFrame", test: "pd.DataFrame"
) -> list[str]:
    """Add a column with the prediction of each model to `test`; the columns' names."""
    target = train[TARGET].to_numpy()
    encoded = encode_features(test, vocabulary)
    test["model"] = trees.load().predict(tree_matrix(encoded))
    test["linear"] = predict_linear(encode_features(train, vocabulary), target, encoded)
    test["mean"] = predict_mean(target, len(test))
    return ["model", "linear", "mean"]


def _rounds(trees: TrainedTrees) -> int:
    return len(trees.history["validation"])


def _importance(trees: TrainedTrees) -> dict[str, float]:
    """Each feature's share of the error that all splits together took away, largest first."""
    gains = trees.load().get_score(importance_type="total_gain")
    total = sum(gains.values()) or 1.0
    shares = {name: gain / total for name, gain in gains.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _log_training(
    settings: TreeSettings, trees: TrainedTrees, metrics: dict[str, dict[str, float]]
) -> None:
    """Parameters, one metric per round, and the test metrics of all three models."""
    import mlflow
    from mlflow.entities import Metric
    from mlflow.utils.time import get_current_time_millis

    # The task's own parameters are logged already, under their own names.
    for name, value in settings.parameters(threads=0).items():
        if name != "nthread":
            mlflow.log_param(f"xgboost.{name}", value)
    mlflow.log_metric("best_round", trees.best_round())
    for name, values in metrics.items():
        mlflow.log_metrics({f"test_{name}_{key}": value for key, value in values.items()})
    now = get_current_time_millis()
    steps = [
        Metric(f"{split}_rmse", error, now, step)
        for split, errors in trees.history.items()
        for step, error in enumerate(errors, start=1)
    ]
    run, client = mlflow.active_run(), mlflow.MlflowClient()
    for start in range(0, len(steps), 1_000):
        client.log_batch(run.info.run_id, metrics=steps[start : start + 1_000])


def _log_plots(trees: TrainedTrees, test: "pd.DataFrame", importance: dict[str, float]) -> None:
    import mlflow

    plots = {
        "learning": draw_learning(trees.history, trees.best_round()),
        "importance": draw_importance(importance),
        "predicted_against_actual": draw_predicted_against_actual(test[TARGET], test["model"]),
        "error_by_hour": draw_error_by(test.assign(hour=test["departure_minute"] // 60), "hour"),
        "error_by_carrier": draw_error_by(test, "carrier"),
    }
    for name, figure in plots.items():
        mlflow.log_figure(figure, f"plots/{name}.png", save_kwargs={"dpi": 160})
