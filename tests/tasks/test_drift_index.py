from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.drift_index import DRIFTED, SHIFTED, stability_index

VALUES = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-50, 50)), min_size=1)


@given(VALUES)
def test_the_same_values_in_any_order_have_not_moved(values):
    shuffled = values[:]
    random.Random(1).shuffle(shuffled)
    assert stability_index(values, shuffled) == 0


@given(VALUES, VALUES)
def test_the_index_is_a_number_from_zero_on_and_the_same_both_ways_for_texts(before, after):
    assert 0 <= stability_index(before, after) < math.inf
    one, two = [str(value) for value in before], [str(value) for value in after]
    assert stability_index(one, two) == pytest.approx(stability_index(two, one))


def test_a_sample_is_steady_and_a_shift_has_drifted():
    dice = random.Random(7)
    before = [dice.gauss(0, 1) for _ in range(20_000)]
    assert stability_index(before, [dice.gauss(0, 1) for _ in range(5_000)]) < SHIFTED
    assert stability_index(before, [dice.gauss(1, 1) for _ in range(5_000)]) > DRIFTED


def test_values_that_are_missing_now_count():
    before = [1.0, 2.0, 3.0, 4.0] * 50
    assert stability_index(before, [*before, *[None] * 200]) > DRIFTED
