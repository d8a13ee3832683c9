from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.profiles.advice import Used, advise_profile
from headrace.profiles.models import ComputeProfile


def changes(profile, *attempts):
    return [advice.change for advice in advise_profile(profile, attempts)]


def used(**values):
    return Used(
        **{"task": "t", "wall_s": 100.0, "cpu_s": 300.0, "peak_memory_mib": 2000.0} | values
    )


FITTING = ComputeProfile(name="p", cores=4, memory_mib=4096)


def test_a_profile_that_fits_is_left_alone():
    assert changes(FITTING, used()) == []
    assert changes(FITTING) == []


@pytest.mark.parametrize(
    ("attempt", "change"),
    [
        (used(peak_memory_mib=500.0), 'memory = "768MiB"'),
        (used(peak_memory_mib=3900.0), 'memory = "5888MiB"'),
        (used(spilled_bytes=10**9), 'memory = "6GiB"'),
        (used(cpu_s=95.0), "cores = 2"),
    ],
)
def test_what_does_not_fit_is_said_with_the_line_to_write(attempt, change):
    assert changes(FITTING, attempt) == [change]


def test_the_largest_and_the_busiest_attempt_decide():
    assert changes(FITTING, used(peak_memory_mib=100.0, cpu_s=10.0), used()) == []


def test_what_fits_on_one_node_needs_no_workers():
    wide = ComputeProfile(name="p", cores=8, memory_mib=16384, workers=4)
    found = advise_profile(wide, [used(peak_memory_mib=2500.0, cpu_s=190.0)])
    assert [advice.change for advice in found] == [
        'memory = "3840MiB"',
        "workers = 1",
        "cores = 3\nworkers = 3",
    ]
    assert "single node" in found[1].found


def test_short_attempts_say_nothing_about_a_profile():
    assert changes(FITTING, used(wall_s=2.0, cpu_s=0.1, peak_memory_mib=20.0)) == []


@given(
    st.integers(1, 64),
    st.integers(256, 10**6),
    st.lists(st.tuples(st.floats(5, 1e5), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5),
)
def test_advice_never_gives_less_memory_than_was_used_nor_no_core(cores, memory, figures):
    profile = ComputeProfile(name="p", cores=cores, memory_mib=memory)
    attempts = [Used(task="t", wall_s=w, cpu_s=c, peak_memory_mib=m) for w, c, m in figures]
    peak = max((m for _, _, m in figures), default=0)
    from headrace.profiles.units import parse_memory

    for advice in advise_profile(profile, attempts):
        key, _, value = advice.change.partition(" = ")
        if key == "memory":
            assert parse_memory(value.strip('"')) >= peak
        else:
            assert 1 <= int(value) <= cores
