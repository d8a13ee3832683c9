"""Hyperopt's spaces: what an objective gets is what Hyperopt itself would give it."""

from __future__ import annotations

import math

import pytest
from hyperopt import hp, space_eval
from hyperopt.pyll import scope

from headrace import ml
from headrace.exceptions import MlRequestError
from headrace.ml.spaces import evaluate, read_space

SPACE = {
    "rate": hp.loguniform("rate", -5, 0),
    "pairs": hp.quniform("pairs", 1, 10, 2),
    "whole": hp.uniformint("whole", 1, 5),
    "number": hp.randint("number", 4),
    "depth": scope.int(hp.quniform("depth", 1, 8, 1)),
    "model": hp.choice("model", [{"kind": "a", "x": hp.uniform("x", 0, 1)}, {"kind": "b"}]),
    "fixed": [3, "text"],
}


@pytest.mark.parametrize("model", [0, 1])
def test_an_objective_gets_what_hyperopt_would_give_it(model):
    params = {"rate": 0.1, "pairs": 4.0, "whole": 3, "number": 2, "depth": 3.0, "x": 0.25}
    params["model"] = model
    found, wanted = evaluate(SPACE, params), space_eval(SPACE, params)
    assert found["model"] == wanted["model"]
    assert found["depth"] == wanted["depth"] == 3
    assert {name: found[name] for name in ("rate", "pairs", "whole", "number")} == {
        name: wanted[name] for name in ("rate", "pairs", "whole", "number")
    }
    assert list(found["fixed"]) == list(wanted["fixed"])


def test_labels_become_parameters_with_the_same_bounds():
    found = read_space(SPACE).distributions
    assert found.keys() == {"rate", "pairs", "whole", "number", "depth", "model", "x"}
    assert (found["rate"].low, found["rate"].high) == (math.exp(-5), 1.0)
    assert found["rate"].log
    assert (found["whole"].low, found["whole"].high, found["whole"].step) == (1, 5, 1)
    assert found["number"].choices == (0, 1, 2, 3)


def test_a_hyperopt_objective_moves_over_as_it_is():
    def objective(params):
        model = params["model"]
        return {"loss": model.get("x", 2.0) + params["whole"], "status": "ok"}

    found = ml.tune(objective, SPACE, n_trials=5, parallelism=1, seed=1, backend="local")
    assert found.counts()["complete"] == 5
    assert found.best_value == min(trial.value for trial in found.study.trials)


def test_what_optuna_can_not_sample_is_refused_by_name():
    with pytest.raises(MlRequestError, match="normal"):
        read_space({"x": hp.normal("x", 0, 1)})
    with pytest.raises(MlRequestError, match="no search space"):
        read_space({"x": 3})
