"""Planning, counting and sampling of groups, without an engine."""

from __future__ import annotations

import datetime as dt
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.exceptions import MlRequestError
from headrace.ml.group_log import code_of
from headrace.ml.group_plan import MIB, Group, marked, plan_groups, sample_rows
from headrace.ml.group_rows import group_codes, measure, row_hashes, to_pandas
from headrace.ml.group_training import check_on_large
from headrace.ml.memory import jvm_mib
from headrace.ml.sampling import sample_batches


def group(number, rows, size=0):
    return Group(number=number, key=(number,), rows=rows, bytes=size, fingerprint=f"f{number}")


@given(
    rows=st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    workers=st.integers(1, 8),
)
def test_every_group_is_in_one_bin_and_no_bin_has_more_than_its_share_by_more_than_a_group(
    rows, workers
):
    groups = [group(number, count) for number, count in enumerate(rows)]
    plan = plan_groups(groups, workers=workers, budget_mib=1)
    assert sorted(number for found in plan.bins for number in found) == list(range(len(rows)))
    loads = [sum(rows[number] for number in found) for found in plan.bins]
    assert loads == sorted(loads, reverse=True)
    assert max(loads) <= sum(rows) / len(plan.bins) + max(rows)
    assert len(plan.bins) == min(len(rows), 4 * workers)


def test_groups_beyond_a_workers_memory_are_named_largest_first():
    groups = [group(0, 10, MIB), group(1, 10, 40 * MIB), group(2, 10, 90 * MIB)]
    plan = plan_groups(groups, workers=2, budget_mib=100)
    assert [found.number for found in plan.large] == [2, 1]
    assert plan.bins == ((0,),)


def test_what_a_large_group_is_trained_on_is_part_of_its_fingerprint():
    large = group(0, 1000, 100 * MIB)
    assert sample_rows(large, 100) == 300
    plain = {marked(large, on, budget_mib=100, seed=1) for on in ("fail", "alone", "leave")}
    assert plain == {large.fingerprint}
    assert marked(large, "sample", budget_mib=400, seed=1) == large.fingerprint
    others = [
        marked(large, "sample", budget_mib=100, seed=1),
        marked(large, "sample", budget_mib=100, seed=2),
        marked(large, "sample", budget_mib=50, seed=1),
        marked(large, "iterate", budget_mib=100, seed=1),
    ]
    assert len({*plain, *others}) == 5


ROWS = pa.table({
    "text": pa.array(["a", None, "a", "b", None, ""]),
    "day": pa.array([dt.date(2013, 1, 1)] * 5 + [None]),
    "whole": pa.array([1, 1, None, 0, 1, 2], pa.int32()),
    "real": pa.array([0.0, -0.0, None, 1.5, float("nan"), 2.0]),
    "list": pa.array([[1], None, [2], [], [1], [1]], pa.list_(pa.int64())),
})  # fmt: skip


def test_keys_are_found_with_their_nulls():
    codes, keys = group_codes(ROWS, ["text", "day"])
    assert [keys[code] for code in codes] == [(row["text"], row["day"]) for row in ROWS.to_pylist()]
    assert len(keys) == len(set(keys)) == 4


@given(st.permutations(range(6)), st.integers(0, 6))
def test_a_fingerprint_follows_from_the_rows_whatever_their_order_and_batches(order, cut):
    mixed = ROWS.take(list(order))
    whole = measure(ROWS, ["text"])
    first, second = measure(mixed[:cut], ["text"]), measure(mixed[cut:], ["text"])
    for key, (rows, size, hashed) in whole.items():
        parts = [part[key] for part in (first, second) if key in part]
        assert sum(part[0] for part in parts) == rows
        assert sum(part[1] for part in parts) == size
        assert sum(part[2] for part in parts) % 2**64 == hashed


def test_rows_with_other_values_have_other_hashes():
    assert len(set(row_hashes(ROWS).tolist())) == ROWS.num_rows
    zero = pa.table({"x": [0.0, -0.0]})
    assert len(set(row_hashes(zero).tolist())) == 1
    null, swapped = pa.table({"x": [0, None]}), pa.table({"a": ["x", "y"], "b": ["y", "x"]})
    assert len(set(row_hashes(null).tolist())) == 2
    assert len(set(row_hashes(swapped).tolist())) == 2


def test_times_come_to_pandas_as_spark_gives_them():
    when = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    table = pa.table({"at": pa.array([when, None], pa.timestamp("us", "UTC"))})
    import pandas as pd

    frame = to_pandas(table)
    assert frame["at"].dtype == "datetime64[ns]"
    assert frame["at"][0] == pd.Timestamp("2013-01-01 05:00")


@given(st.integers(1, 200), st.integers(1, 50), st.lists(st.integers(1, 40), max_size=6))
def test_a_sample_has_the_wanted_rows_in_order_and_is_the_same_however_rows_are_cut(
    total, wanted, cuts
):
    import pandas as pd

    frame = pd.DataFrame({"x": np.arange(total)})
    edges = sorted({0, total, *(min(cut, total) for cut in cuts)})
    batches = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    found = sample_batches(batches, total, wanted, (7, ("AA",)))
    assert len(found) == min(total, wanted)
    assert found["x"].is_monotonic_increasing
    assert found["x"].is_unique
    assert found.equals(sample_batches([frame], total, wanted, (7, ("AA",))))


def test_each_row_is_about_as_likely_in_a_sample():
    import pandas as pd

    frame = pd.DataFrame({"x": np.arange(20)})
    seen = np.zeros(20)
    for seed in range(2_000):
        seen[sample_batches([frame], 20, 5, (seed, ("AA",)))["x"]] += 1
    assert seen.min() > 400
    assert seen.max() < 600


def test_another_fit_has_another_code_and_the_same_one_written_again_has_not():
    def make(alpha, power=1):
        def fit(frame):
            return frame["x"].mean() * alpha**power

        return fit

    assert code_of(make(1)) == code_of(make(1))
    assert len({code_of(make(1)), code_of(make(2)), code_of(make(1, 2)), code_of(len)}) == 4


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(MlRequestError, match="belong together"):
        check_on_large("iterate", has_fit_batches=False)
    with pytest.raises(MlRequestError, match="does not exist"):
        check_on_large("smaple", has_fit_batches=False)


@pytest.mark.parametrize(
    ("text", "mib"), [("2g", 2048), ("512m", 512), ("1024k", 1), ("1048576b", 1), ("384", 384)]
)
def test_sizes_of_spark_settings(text, mib):
    assert jvm_mib(text) == mib
