"""Texts of the log become the values that Spark's cast makes of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delta.partitions import partition_scalar

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)
SHIFTS = st.sampled_from([0, Decimal("1e-30"), Decimal("-1e-30"), Decimal("1e-17")])


def single(text):
    return partition_scalar(text, "float", pa.float32()).as_py()


@settings(deadline=None)
@given(SINGLES, SHIFTS)
def test_a_float_is_rounded_once(value, shift):
    """Midway between two floats the digits beyond a double decide."""
    with np.errstate(over="ignore"):
        above = float(np.nextafter(np.float32(value), np.float32(np.inf)))
    if not np.isfinite(above):
        return
    middle = (Fraction(value) + Fraction(above)) / 2
    with localcontext(prec=250):
        exact = Decimal(middle.numerator) / Decimal(middle.denominator)
        text = str(exact + abs(exact) * shift)
    wanted = Fraction(Decimal(text))
    found = single(text)
    off = {side: abs(Fraction(side) - wanted) for side in (value, above)}
    assert abs(Fraction(found) - wanted) == min(off.values())


@pytest.mark.parametrize("text", ["12:34:56", "T12:34:56.000000", " 13:34:56+01:00 ", "T12:34:56Z"])
def test_a_time_without_a_day_is_todays(text):
    def today():
        return dt.datetime.now(dt.UTC).date()

    before = today()
    found = partition_scalar(text, "timestamp", pa.timestamp("us", "UTC")).as_py()
    assert before <= found.date() <= today()
    assert found.time() == dt.time(12, 34, 56)
    assert not partition_scalar(text, "timestamp_ntz", pa.timestamp("us")).is_valid
