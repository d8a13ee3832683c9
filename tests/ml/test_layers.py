from __future__ import annotations

import os

import pytest

from headrace import ml
from headrace.exceptions import NestedLayersError
from headrace.ml.layers import inside
from headrace.ml.parallelism import advise_parallelism
from headrace.ml.threads import VARIABLES, threads_per_worker


def _layers(_: int) -> tuple[str, ...]:
    return ml.current_layers()


def test_plain_python_is_inside_of_nothing():
    assert ml.current_layers() == ()
    ml.refuse_nested("ml.tune")


def test_a_trial_refuses_to_distribute_and_says_both_ways_out():
    with inside("tuning trial"), pytest.raises(NestedLayersError) as caught:
        ml.refuse_nested("ml.tune")
    assert "started inside a tuning trial" in str(caught.value)
    assert "on the driver" in str(caught.value)
    assert "n_jobs=1" in str(caught.value)
    assert ml.current_layers() == ()


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_the_workers_of_n_jobs_are_a_layer(backend):
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=2, backend=backend)(delayed(_layers)(n) for n in range(2))
    assert found == [("joblib worker",)] * 2


def test_threads_are_capped_in_loaded_libraries_and_all_is_put_back():
    import xgboost
    from joblib import effective_n_jobs
    from threadpoolctl import threadpool_info

    before = {name: os.environ.get(name) for name in VARIABLES}
    pools = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    with ml.thread_caps(1):
        assert all(os.environ[name] == "1" for name in VARIABLES)
        assert all(pool["num_threads"] == 1 for pool in threadpool_info())
        assert xgboost.get_config()["nthread"] == 1
        assert effective_n_jobs(-1) == 1
    assert {name: os.environ.get(name) for name in VARIABLES} == before
    assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == pools
    assert xgboost.get_config()["nthread"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(8, 2, 4), (8, 3, 2), (1, 4, 1), (4, 0, 4)]
)
def test_workers_times_threads_stay_within_the_cores(cores, workers, threads):
    assert threads_per_worker(cores, workers) == threads


@pytest.mark.parametrize(
    ("parallelism", "slots", "n_trials", "words"),
    [
        (2, 2, 8, []),
        (1, 2, 1, []),
        (4, 2, 100, ["2 slots"]),
        (4, 4, 8, ["parallelism=2, or n_trials=16"]),
        (4, 2, 4, ["2 slots", "parallelism=1"]),
        (2, 2, None, []),
    ],
)
def test_unwise_parallelism_is_told(parallelism, slots, n_trials, words):
    found = advise_parallelism(parallelism, slots=slots, n_trials=n_trials)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
