"""A trial inside Ray Tune: the same objective, whose words go to Ray Tune instead of a driver."""

from __future__ import annotations

import math
import pickle
from typing import Any, Final

from headrace.exceptions import MlRequestError
from headrace.ml.layers import inside
from headrace.ml.threads import thread_caps
from headrace.ml.trial_ends import is_number
from headrace.ml.trial_worker import run_objective, use_environment

METRIC: Final = "headrace_value"
DONE: Final = "headrace_done"


class TuneLine:
    """What a trial talks to: reports become Ray Tune's, and the scheduler decides on pruning."""

    def __init__(self) -> None:
        self._attrs: dict[str, Any] = {}
        self._stop = False
        self._last: tuple[float, int] | None = None
        self._answer: tuple[str, Any] = ("value", None)

    def send(self, message: tuple[Any, ...]) -> None:
        """Take a word of the trial."""
        kind, *values = message
        if kind == "report":
            self._last = (values[0], values[1])
            self._report({METRIC: values[0], "step": values[1]})
        elif kind == "attr":
            self._attrs[values[0]] = values[1]
        elif kind == "stop":
            self._stop = True
        elif kind == "prune?":
            self._answer = ("value", False)
        elif kind == "suggest":
            self._answer = ("error", _no_suggestion(values[1]))
        elif kind == "done":
            self._done(*values)

    def recv(self) -> tuple[str, Any]:
        """The answer to the last question."""
        return self._answer

    def _done(self, state: str, value: Any, error: Any) -> None:
        # Schedulers compare the last value too: that of a trial without one must not be best.
        before = self._last[0] if self._last else math.nan
        number = float(value) if state == "complete" and is_number(value) else before
        step = self._last[1] + 1 if self._last else 0
        self._report({METRIC: number, "step": step, DONE: (state, value, error)})

    def _report(self, metrics: dict[str, Any]) -> None:
        from ray import tune

        # Pairs: Ray Tune would flatten a dict into "attrs/NAME".
        tune.report({**metrics, "attrs": tuple(self._attrs.items()), "stop": self._stop})


def run_trial(config: dict[str, Any], job: dict[str, Any], refs: list[Any]) -> None:
    """What Ray Tune runs for each configuration."""
    import ray

    message = config["_headrace"]
    params = {name: value for name, value in config.items() if name != "_headrace"}
    data = None if refs[0] is None else ray.get(refs[0])
    with thread_caps(job["threads"]), use_environment(job["env"]), inside("tuning trial"):
        objective = pickle.loads(job["objective"])  # noqa: S301 - our own bytes
        run_objective(TuneLine(), objective, data, {**message, "params": params})


def _no_suggestion(name: str) -> MlRequestError:
    return MlRequestError(
        problem=f"The objective suggests {name!r}, which the space does not have.",
        found="Ray Tune takes all parameters of a trial before it starts.",
        fix=f'space={{"{name}": optuna.distributions.FloatDistribution(0, 1)}}',
    )
