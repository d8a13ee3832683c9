"""What the user's code raised comes first, whatever Ray wraps around it."""

from __future__ import annotations

from headrace.engines.own_errors import own_error


def wrapped(error: Exception) -> Exception:
    from ray.exceptions import RayTaskError, UserCodeException

    outer = UserCodeException("UDF failed to process a data block.")
    outer.__cause__ = error
    return RayTaskError("map", "traceback", outer).as_instanceof_cause()


def test_the_innermost_error_is_the_users():
    mine = ZeroDivisionError("mine")
    assert own_error(wrapped(mine)) is mine
    assert own_error(mine) is mine


def test_what_the_users_error_was_raised_from_stays_behind_it():
    mine = ValueError("mine")
    mine.__cause__ = KeyError("before")
    assert own_error(wrapped(mine)) is mine


def test_an_error_of_ray_itself_is_left_alone():
    from ray.exceptions import UserCodeException

    lonely = UserCodeException("without a cause")
    assert own_error(lonely) is lonely
