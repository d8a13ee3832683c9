from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.profiles.units import (
    UnitError,
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("1536MiB", 1536),
        ("2GiB", 2048),
        ("2g", 2048),
        ("2G", 2048),
        ("512m", 512),
        ("1.5 GiB", 1536),
        (" 1TiB ", 1024 * 1024),
        ("2048KiB", 2),
        ("1GB", 953),
        ("1048576b", 1),
    ],
)
def test_memory_is_read_in_every_usual_unit(text, mib):
    assert parse_memory(text) == mib


@given(st.integers(min_value=1, max_value=10**9))
def test_memory_comes_back_from_its_own_text(mib):
    assert parse_memory(format_memory(mib)) == mib


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(["k", "m", "g", "t"]))
def test_the_letter_of_a_unit_means_the_binary_one_in_any_case(number, letter):
    texts = [f"{number}{letter}", f"{number}{letter.upper()}", f"{number} {letter.upper()}iB"]
    found = set()
    for text in texts:
        try:
            found.add(parse_memory(text))
        except UnitError as error:
            found.add(error.value)
    assert len(found) == 1


@given(st.integers(min_value=1, max_value=10**7))
def test_a_whole_number_of_seconds_comes_back_from_its_own_text(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_other_text_is_refused_with_a_value_that_would_do(text):
    for parse in (parse_memory, parse_duration):
        try:
            found = parse(text)
        except UnitError as error:
            found = parse(error.value.strip('"'))
        assert found > 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("90s", 90), ("1.5h", 5400), ("250ms", 0.25), ("1d", 86400)],
)
def test_a_duration_is_read_in_every_usual_unit(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("parse", "value", "problem", "instead"),
    [
        (parse_memory, 2048, "2048 has no unit", "2048MiB"),
        (parse_memory, 1.5, "1.5 has no unit", "1.5MiB"),
        (parse_memory, "2048", "'2048' has no unit", "2048MiB"),
        (parse_memory, "2 gigs", "'2 gigs' has the unknown unit 'gigs'", "2MiB"),
        (parse_memory, "-2GiB", "'-2GiB' is no number with a unit", "2MiB"),
        (parse_memory, True, "True is no number with a unit", "2MiB"),
        (parse_memory, "", "'' is no number with a unit", "2MiB"),
        (parse_memory, "1KiB", "'1KiB' is less than 1 MiB", "1MiB"),
        (parse_duration, 30, "30 has no unit", "30s"),
        (parse_duration, "30 MiB", "'30 MiB' has the unknown unit 'MiB'", "30s"),
        (parse_duration, "0s", "'0s' is no time at all", "30m"),
    ],
)
def test_a_wrong_unit_says_what_to_write(parse, value, problem, instead):
    with pytest.raises(UnitError) as caught:
        parse(value)
    assert caught.value.problem == problem
    assert caught.value.value == f'"{instead}"'
