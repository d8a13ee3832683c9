"""Training, tuning and inference at scale: `from headrace import ml`, then `ml.tune(...)`.

The names load at first use, so that `import headrace.ml` starts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.ml.advice import Advice
    from headrace.ml.advising import advise
    from headrace.ml.group_results import GroupResult
    from headrace.ml.groups import train_per_group
    from headrace.ml.layers import current_layers, refuse_nested
    from headrace.ml.scoring import ScoreResult, score
    from headrace.ml.threads import thread_caps
    from headrace.ml.tune_result import TuneResult
    from headrace.ml.tuning import tune

__all__ = [
    "Advice",
    "GroupResult",
    "ScoreResult",
    "TuneResult",
    "advise",
    "current_layers",
    "refuse_nested",
    "score",
    "thread_caps",
    "train_per_group",
    "tune",
]

_MODULES = {
    "Advice": "advice",
    "GroupResult": "group_results",
    "ScoreResult": "scoring",
    "TuneResult": "tune_result",
    "advise": "advising",
    "current_layers": "layers",
    "refuse_nested": "layers",
    "score": "scoring",
    "thread_caps": "threads",
    "train_per_group": "groups",
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
