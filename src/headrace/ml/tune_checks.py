"""What `ml.tune` refuses before anything starts: arguments that don't go together."""

from __future__ import annotations

from typing import Any

from headrace.exceptions import MlRequestError
from headrace.ml.spaces import Space

# Pruners that compare a trial with others that still run.
_RACING = ("SuccessiveHalvingPruner", "HyperbandPruner")


def check_study(
    n_trials: int | None,
    timeout_s: float | None,
    *,
    deterministic: bool,
    space: Space,
    pruner: Any,
) -> None:
    """Return where a study can end, and be deterministic if it is to be.

    Raises:
        MlRequestError: It can't.
    """
    if n_trials is None and timeout_s is None:
        raise MlRequestError(
            problem="ml.tune has neither n_trials nor timeout_s.",
            found="A study without either would never end.",
            fix="n_trials=50, or timeout_s=600",
        )
    if deterministic and not space.distributions:
        raise MlRequestError(
            problem="deterministic=True needs a space.",
            found="Parameters that trials suggest at the same time come in any order.",
            fix='space={"depth": optuna.distributions.IntDistribution(2, 8)}',
        )
    if deterministic and type(pruner).__name__ in _RACING:
        raise MlRequestError(
            problem=f"deterministic=True does not go with {type(pruner).__name__}.",
            found="What it prunes depends on how far other trials have come.",
            fix="pruner=optuna.pruners.MedianPruner()",
        )


def check_ray_tune(*, space: Space, given: dict[str, Any]) -> None:
    """Return where Ray Tune can run the study.

    Args:
        space: The study's space.
        given: Arguments that it has no use for, by name; those that were not given are falsy.

    Raises:
        MlRequestError: It can't.
    """
    instead = {
        "pruner": "its scheduler ends trials: scheduler=ASHAScheduler()",
        "deterministic": "its trials end in any order",
        "retries_of_lost": "a lost trial is told as failed",
    }
    _refuse("ray_tune", instead, given)
    kinds = type(given.get("scheduler")).__mro__
    if any(kind.__module__.startswith("ray.tune.schedulers.pb") for kind in kinds):
        raise MlRequestError(
            problem=f"ml.tune does not go with {type(given['scheduler']).__name__}.",
            found="It changes a trial's parameters on its way; the study would keep those that "
            "the trial began with.",
            fix="scheduler=ASHAScheduler(), or Ray Tune's own Tuner",
        )
    if not space.distributions:
        raise MlRequestError(
            problem='backend="ray_tune" needs a space.',
            found="Ray Tune takes all parameters of a trial before it starts.",
            fix='space={"depth": optuna.distributions.IntDistribution(2, 8)}',
        )


def check_mlflow_spark(*, n_trials: int | None, storage: Any, given: dict[str, Any]) -> None:
    """Return where MlflowSparkStudy can run the study.

    Args:
        n_trials: Trials of the study.
        storage: Where it is kept.
        given: Arguments that it has no use for, by name; those that were not given are falsy.

    Raises:
        MlRequestError: It can't.
    """
    instead = {
        "callbacks": "they would run on executors, each with a study of its own",
        "deterministic": "its trials end in any order",
        "retries_of_lost": "Spark decides on that",
        "scheduler": 'that is for backend="ray_tune"',
    }
    _refuse("mlflow_spark", instead, given)
    if n_trials is None:
        raise MlRequestError(
            problem='backend="mlflow_spark" needs n_trials.',
            found="MlflowSparkStudy shares the trials out before it starts; without a number it "
            "runs none and reports success.",
            fix="n_trials=50; timeout_s may end it earlier",
        )
    if storage != "mlflow":
        raise MlRequestError(
            problem=f'backend="mlflow_spark" can\'t keep its study in {storage!r:.80}.',
            found="MlflowSparkStudy keeps it in MLflow.",
            fix='storage="mlflow"',
        )


def _refuse(backend: str, instead: dict[str, str], given: dict[str, Any]) -> None:
    for name, reason in instead.items():
        value = given.get(name)
        if value is not None and value is not False and value not in (0, ()):
            raise MlRequestError(
                problem=f'{name} does not go with backend="{backend}".',
                found=f"{name}={value!r:.80}; {reason}.",
                fix=f'leave {name} out, or backend="{"ray" if backend == "ray_tune" else "spark"}"',
            )
