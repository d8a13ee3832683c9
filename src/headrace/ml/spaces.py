"""Search spaces: Optuna's distributions by name, or a space of Hyperopt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.exceptions import MlRequestError


@dataclass(frozen=True)
class Space:
    """A space as the study samples it.

    Attributes:
        distributions: By parameter; empty where the objective suggests its own.
        adapt: Makes what is sampled into an objective's view of it; None for the trial itself.
    """

    distributions: dict[str, Any] = field(default_factory=dict)
    adapt: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None = None


def read_space(space: Any) -> Space:
    """A user's space, checked.

    Args:
        space: None (the objective suggests its own), a dict of `optuna.distributions`, or anything
            that Hyperopt's `fmin` takes.

    Raises:
        MlRequestError: It is neither.
    """
    if space is None:
        return Space()
    from optuna.distributions import BaseDistribution

    if isinstance(space, Mapping) and all(
        isinstance(item, BaseDistribution) for item in space.values()
    ):
        return Space(dict(space))
    if _has_hyperopt(space):
        return _hyperopt_space(space)
    raise MlRequestError(
        problem=f"space={space!r:.120} is no search space.",
        found="A dict of optuna.distributions by parameter, a Hyperopt space, or None.",
        fix='space={"depth": optuna.distributions.IntDistribution(2, 8)}',
    )


def _has_hyperopt(space: Any) -> bool:
    if isinstance(space, Mapping):
        return any(_has_hyperopt(item) for item in space.values())
    if isinstance(space, list | tuple):
        return any(_has_hyperopt(item) for item in space)
    return type(space).__module__.startswith("hyperopt.")


def _hyperopt_space(space: Any) -> Space:
    """Every labelled node becomes a distribution; a choice is its number, as in SparkTrials."""
    found: dict[str, Any] = {}
    _collect(space, found)
    return Space(found, _Adapter(space))


@dataclass(frozen=True)
class _Adapter:
    """Calls an objective of Hyperopt's kind: parameters in, a loss or a dict with it out."""

    space: Any

    def __call__(self, objective: Callable[[Any], Any]) -> Callable[[Any], Any]:
        space = self.space

        def call(trial: Any) -> Any:
            told = objective(evaluate(space, trial.params))
            if not isinstance(told, Mapping):
                return told
            if told.get("status", "ok") != "ok":
                raise RuntimeError(f"the objective returned status {told['status']!r}")
            return told["loss"]

        return call


def evaluate(node: Any, params: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each kind
    """A space with its parameters filled in, as Hyperopt gives it to an objective."""
    if isinstance(node, Mapping):
        return {name: evaluate(item, params) for name, item in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(evaluate(item, params) for item in node)
    name = getattr(node, "name", None)
    if name is None:
        return node
    if name == "literal":
        return node.obj
    if name == "hyperopt_param":
        return _rounded(node.pos_args[1], params[_label(node)])
    if name in ("float", "int"):
        return (float if name == "float" else int)(evaluate(node.pos_args[0], params))
    if name == "switch":
        place = int(evaluate(node.pos_args[0], params))
        return evaluate(node.pos_args[place + 1], params)
    if name == "pos_args":
        return tuple(evaluate(item, params) for item in node.pos_args)
    if name == "dict":
        return {key: evaluate(item, params) for key, item in node.named_args}
    raise _unknown(name)


def _collect(node: Any, found: dict[str, Any]) -> None:
    if isinstance(node, Mapping):
        node = list(node.values())
    if isinstance(node, list | tuple):
        for item in node:
            _collect(item, found)
        return
    if not hasattr(node, "pos_args"):
        return
    if node.name == "hyperopt_param":
        label = _label(node)
        found[label] = _distribution(label, node.pos_args[1])
        return
    _collect(node.pos_args, found)
    _collect([item for _, item in node.named_args], found)


def _label(node: Any) -> str:
    return str(node.pos_args[0].obj)


def _numbers(node: Any) -> list[Any]:
    """The constants of a distribution's node, in order; nested ones are no constants."""
    items = [*node.pos_args, *(item for _, item in node.named_args)]
    if any(item.name != "literal" for item in items):
        raise _unknown(node.name)
    return [item.obj for item in items]


def _distribution(label: str, node: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    name = node.name
    if name == "randint":
        numbers = _numbers(node)
        low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
        # A choice is drawn by its number, which has no order.
        return CategoricalDistribution(list(range(int(low), int(high))))
    numbers = _numbers(node)
    if name == "uniform":
        return FloatDistribution(*numbers)
    if name == "loguniform":
        return FloatDistribution(math.exp(numbers[0]), math.exp(numbers[1]), log=True)
    if name == "quniform":
        low, high, step = numbers
        first, last = math.ceil(low / step), math.floor(high / step)
        return FloatDistribution(first * step, last * step, step=step)
    raise _unknown(f"{name} (parameter {label!r})")


def _rounded(node: Any, value: Any) -> Any:
    return int(value) if node.name == "randint" else value


def _unknown(name: str) -> MlRequestError:
    return MlRequestError(
        problem=f"Hyperopt's {name} has no equal in Optuna.",
        found="Known: uniform, loguniform, quniform, uniformint, randint, choice.",
        fix="suggest the parameter in the objective: trial.suggest_float(...)",
    )
