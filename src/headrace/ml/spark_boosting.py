"""XGBoost's Spark estimator, with the same arguments and result as a training on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.exceptions import MlRequestError
from headrace.ml.boosted import BoostedModel, Progress, more_is_better, not_a_number
from headrace.ml.engine import barrier_slots, is_connect
from headrace.ml.layers import refuse_nested
from headrace.tables import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALIDATION = "_headrace_validation"
# XGBoost's own names, in the words of scikit-learn that its Spark estimator knows.
_NAMES = {
    "eta": "learning_rate",
    "alpha": "reg_alpha",
    "lambda": "reg_lambda",
    "seed": "random_state",
}


def train_on_spark(  # noqa: PLR0913 - those of train_xgboost
    data: Any,
    validation: Any,
    *,
    columns: dict[str, Any],
    params: dict[str, Any],
    rounds: int,
    patience: int | None,
    workers: int,
    use_gpu: bool,
    spark: Any,
) -> BoostedModel:
    """Train in one barrier stage of `workers` tasks.

    Raises:
        MlRequestError: The session has no JVM, or fewer slots than workers.
    """
    refuse_nested("ml.train_xgboost")
    if is_connect(spark):
        raise MlRequestError(
            problem="XGBoost's Spark estimator does not run over Spark Connect.",
            found="It needs an RDD and a SparkContext, which a Connect session does not have.",
            fix="call ml.train_xgboost in a @ray_task: it reads the table that Spark has written",
        )
    slots = barrier_slots(spark)
    if workers > slots:
        raise MlRequestError(
            problem=f"workers={workers} are more than Spark has slots.",
            found=f"It has {slots}. All tasks of a barrier stage start at once; Spark alone "
            "would wait ten minutes before it fails.",
            fix=f"workers={slots}, or a profile with more cores",
        )
    parts = {"train": _frame(data, spark)}
    if validation is not None:
        parts["validation"] = _frame(validation, spark)
    kept = {columns["label"], columns["weight"]}
    features = columns["features"] or [name for name in parts["train"].columns if name not in kept]
    whole = _union(parts, list(features), columns)
    estimator = _estimator(params)(
        features_col=list(features),
        label_col=columns["label"],
        num_workers=workers,
        device="cuda" if use_gpu else "cpu",
        n_estimators=rounds,
        # Rows of both kinds reach every worker.
        force_repartition=True,
        **({"weight_col": columns["weight"]} if columns["weight"] else {}),
        **({"validation_indicator_col": _VALIDATION} if validation is not None else {}),
        **({"early_stopping_rounds": patience} if patience is not None else {}),
        **_categorical(features, columns["categories"] or {}),
        **{_NAMES.get(name, name): value for name, value in params.items() if name != "objective"},
    )
    rows = {data: frame.count() for data, frame in parts.items()}
    return _result(estimator.fit(whole), tuple(features), columns, patience, rows)


def _estimator(params: dict[str, Any]) -> Any:
    """The estimator's class for an objective, which it then has as its own."""
    from xgboost.spark import SparkXGBClassifier, SparkXGBRegressor

    objective = str(params.get("objective", "reg:squarederror"))
    if objective in ("binary:logistic", "multi:softprob"):
        return SparkXGBClassifier
    if objective.startswith(("binary:", "multi:")):
        raise MlRequestError(
            problem=f"XGBoost's Spark estimator has no objective {objective!r}.",
            found="It classifies with binary:logistic and multi:softprob.",
            fix='params={"objective": "binary:logistic"}, or backend="ray"',
        )
    return lambda **options: SparkXGBRegressor(objective=objective, **options)


def _categorical(features: list[str], categories: dict[str, Any]) -> dict[str, Any]:
    if not categories:
        return {}
    kinds = ["c" if name in categories else "q" for name in features]
    return {"feature_types": kinds}


def _frame(data: Any, spark: Any) -> DataFrame:
    from headrace.delta.spark import read_table

    if isinstance(data, TableRef | str | Path):
        return read_table(data, spark=spark)
    if hasattr(data, "select") and hasattr(data, "sparkSession"):
        return data
    raise MlRequestError(
        problem=f"A training on Spark got a {type(data).__name__}.",
        found="A TableRef, a table's name or path, or a Spark DataFrame.",
        fix='headrace.read_table("features")',
    )


def _union(parts: dict[str, DataFrame], features: list[str], columns: dict[str, Any]) -> DataFrame:
    """Both data sets with numbers for categories, and a column that says which is which."""
    from pyspark.sql import functions as sql

    found = []
    for data, frame in parts.items():
        wanted = [*features, columns["label"], *([columns["weight"]] if columns["weight"] else [])]
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise MlRequestError(
                problem=f"The data has no column {missing[0]!r}.",
                found=f"It has {', '.join(frame.columns)}.",
                fix="name the label and the features as the table does",
            )
        numbers = [_number(frame, name, (columns["categories"] or {}).get(name)) for name in wanted]
        found.append(frame.select(*numbers, sql.lit(data == "validation").alias(_VALIDATION)))
        _check_label(found[-1], columns["label"], data)
    return found[0] if len(found) == 1 else found[0].unionByName(found[1])


def _number(frame: DataFrame, name: str, values: Any) -> Any:
    from pyspark.sql import functions as sql
    from pyspark.sql.types import BooleanType, NumericType

    column = sql.col(f"`{name}`")
    if values is not None:
        codes = [item for code, value in enumerate(values) for item in (value, float(code))]
        known = sql.create_map(*(sql.lit(item) for item in codes))
        return sql.try_element_at(known, column).cast("float").alias(name)
    kind = frame.schema[name].dataType
    if not isinstance(kind, NumericType | BooleanType):
        raise not_a_number(name, kind.simpleString())
    return column.cast("float").alias(name)


def _check_label(frame: DataFrame, label: str, data: str) -> None:
    from pyspark.sql import functions as sql

    column = sql.col(f"`{label}`")
    bad = frame.filter(column.isNull() | sql.isnan(column)).limit(1).count()
    if bad:
        raise MlRequestError(
            problem=f"A row of {data} has no finite number in its label {label!r}.",
            found="Trees can't be measured against a label that is missing.",
            fix=f'leave them out: frame.filter("{label} is not null")',
        )


def _result(
    fitted: Any,
    features: tuple[str, ...],
    columns: dict[str, Any],
    patience: int | None,
    rows: dict[str, int],
) -> BoostedModel:
    told = fitted.training_summary
    history = {"train": dict(told.train_objective_history)}
    if told.validation_objective_history:
        history["validation"] = dict(told.validation_objective_history)
    metrics = history.get("validation", history["train"])
    rounds = len(next(iter(metrics.values())))
    progress = Progress(
        history=history,
        patience=patience,
        more_is_better=more_is_better(list(metrics)[-1]),
        rounds=rounds,
    )
    booster = fitted.get_booster()
    best = booster[: progress.best_round()] if patience else booster
    return BoostedModel(
        kind="xgboost",
        model=bytes(best.save_raw("ubj")),
        features=features,
        categories=columns["categories"] or {},
        history=history,
        best_round=progress.best_round(),
        rows=rows,
    )
