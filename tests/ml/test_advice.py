"""What a table's size and a profile's memory lead to, in numbers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import ml
from headrace.delta.arrow import write_arrow
from headrace.exceptions import MlRequestError
from headrace.ml.advice import Machine, Speed, Speeds, TableFacts, advise_on
from headrace.ml.advising import DEFAULT_SPEEDS, load_speeds, speeds_from

SPEEDS = Speeds(
    train={
        "python": Speed(start_s=0, mib_per_s=10),
        "spark": Speed(start_s=10, mib_per_s=10),
        "ray": Speed(start_s=8, mib_per_s=8),
    },
    score={
        "python": Speed(start_s=0, mib_per_s=20),
        "spark": Speed(start_s=10, mib_per_s=20),
        "ray": Speed(start_s=8, mib_per_s=16),
    },
    origin="for this test",
)


def facts(mib, **known):
    values = {
        "table": "t@v0",
        "rows": int(mib * 1000),
        "columns": 10,
        "stored_mib": mib / 4,
        "files": 4,
    }
    return TableFacts(**{**values, "memory_mib": mib, **known})


def machine(cores=4, gib=8):
    return Machine(profile="p", cores=cores, memory_mib=gib * 1024)


def test_a_small_table_stays_in_one_process_and_the_reason_has_the_numbers():
    found = advise_on(facts(40), machine(), SPEEDS, by="carrier")
    assert (found.engine, found.one_node, found.workers) == ("python", True, 1)
    text = str(found)
    assert "40 MiB as pandas" in text
    assert "370 MiB, which fit into the 8,192 MiB of profile p" in text
    assert "one process 4 s, Spark on 4 cores 11 s" in text


def test_a_table_beyond_the_cross_over_goes_to_the_faster_engine():
    found = advise_on(facts(2_000), machine(), SPEEDS, goal="score")
    assert found.one_node
    assert (found.engine, found.workers) == ("spark", 4)
    assert found.seconds == {"python": 100.0, "spark": 35.0, "ray": 39.25}
    one_core = advise_on(facts(2_000), machine(cores=1), SPEEDS, goal="score")
    assert one_core.engine == "python"


def test_a_table_that_one_process_can_not_hold_needs_an_engine():
    found = advise_on(facts(5_000), machine(cores=1), SPEEDS, goal="score")
    assert (found.one_node, found.engine) == (False, "spark")
    assert "python" not in found.seconds
    assert "one process lacks the memory" in str(found)
    one_model = advise_on(facts(5_000), machine(), SPEEDS)
    assert one_model.engine == "ray"
    assert "Even shared out the rows need 11,000 MiB" in str(one_model)


@given(st.floats(1, 10_000), st.integers(1, 64), st.sampled_from(["train", "score"]))
def test_one_process_is_left_only_for_what_is_clearly_faster_or_too_large(mib, cores, goal):
    found = advise_on(facts(mib), machine(cores=cores), SPEEDS, goal=goal, by="carrier")
    if found.engine == "python":
        assert found.one_node
    elif found.one_node:
        gain = found.seconds["python"] - found.seconds[found.engine]
        assert gain >= 10
        assert gain > 0.2 * found.seconds["python"]
    assert 1 <= found.workers <= cores


def test_a_study_copies_small_data_and_bounds_workers_by_memory_and_trials():
    small = advise_on(facts(100), machine(), SPEEDS, goal="tune", n_trials=8)
    assert (small.broadcast, small.workers, small.engine) == (True, 2, "python")
    assert "ml.tune(..., data=frame)" in str(small)
    large = advise_on(facts(1_000), machine(), SPEEDS, goal="tune")
    assert (large.broadcast, large.workers) == (False, 3)
    assert "more than the 256 MiB" in str(large)


def test_one_large_group_bounds_what_more_workers_bring():
    even = facts(2_000, groups=100, largest_group=20_000)
    skewed = facts(2_000, groups=100, largest_group=1_000_000, skew=50.0)
    assert (
        advise_on(even, machine(), SPEEDS, by="k").seconds["spark"]
        < advise_on(skewed, machine(), SPEEDS, by="k").seconds["spark"]
    )
    text = str(advise_on(skewed, machine(), SPEEDS, by="k"))
    assert "50.0 times the rows of the mean one" in text
    assert "on_large" in text


@pytest.fixture
def flights(lake):
    rows = pa.table({
        "carrier": ["AA"] * 900 + ["DL"] * 100,
        "word": ["x" * 20] * 1000,
        "delay": np.arange(1000.0),
    })  # fmt: skip
    return write_arrow(rows, "flights", partition_by="carrier", key=())


def test_the_log_tells_rows_bytes_and_the_sizes_of_partitions(flights):
    found = ml.advise(flights, by="carrier").table
    assert (found.rows, found.groups, found.largest_group) == (1000, 2, 900)
    assert found.skew == pytest.approx(1.8)
    # 8 for the number, 57 + 20 for the text, 57 + 8 for a partition's value.
    assert found.memory_mib * 2**20 == pytest.approx(150_000)
    fewer = ml.advise(flights, columns=["delay"]).table
    assert (fewer.columns, fewer.groups) == (1, None)
    assert fewer.memory_mib * 2**20 == pytest.approx(8_000)
    with pytest.raises(MlRequestError, match="goal='fly'"):
        ml.advise(flights, goal="fly")


def test_groups_that_are_no_partitions_are_counted_later(flights):
    assert "does not tell their sizes" in str(ml.advise(flights, by="word"))


def test_measured_speeds_win_over_those_of_the_library(tmp_path):
    assert load_speeds(tmp_path / "speeds.json") is DEFAULT_SPEEDS
    speed = {"start_s": 1.0, "mib_per_s": 2.0}
    values = {goal: dict.fromkeys(("python", "spark", "ray"), speed) for goal in ("train", "score")}
    (tmp_path / "speeds.json").write_text(json.dumps({**values, "origin": "here"}))
    assert load_speeds(tmp_path / "speeds.json") == speeds_from({**values, "origin": "here"})
