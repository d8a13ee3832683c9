"""Training, tuning and inference at scale: `from headrace import ml`, then `ml.tune(...)`.

The names load at first use, so that `import headrace.ml` starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.ml.advice import Advice
    from headrace.ml.advising import advise
    from headrace.ml.boosted import BoostedModel
    from headrace.ml.boosting import train_lightgbm, train_xgboost
    from headrace.ml.group_results import GroupResult
    from headrace.ml.groups import train_per_group
    from headrace.ml.layers import current_layers, refuse_nested
    from headrace.ml.scoring import ScoreResult, score
    from headrace.ml.spark_fit import SparkFit, fit_spark
    from headrace.ml.threads import thread_caps
    from headrace.ml.tune_result import TuneResult
    from headrace.ml.tuning import tune

__all__ = [
    "Advice",
    "BoostedModel",
    "GroupResult",
    "ScoreResult",
    "SparkFit",
    "TuneResult",
    "advise",
    "current_layers",
    "fit_spark",
    "refuse_nested",
    "score",
    "thread_caps",
    "train_lightgbm",
    "train_per_group",
    "train_xgboost",
    "tune",
]

_MODULES = {
    "Advice": "advice",
    "BoostedModel": "boosted",
    "GroupResult": "group_results",
    "ScoreResult": "scoring",
    "SparkFit": "spark_fit",
    "TuneResult": "tune_result",
    "advise": "advising",
    "current_layers": "layers",
    "fit_spark": "spark_fit",
    "refuse_nested": "layers",
    "score": "scoring",
    "thread_caps": "threads",
    "train_lightgbm": "boosting",
    "train_per_group": "groups",
    "train_xgboost": "boosting",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
