"""An empty task in a module of its own, as in a project, for `overhead.py`."""

from headrace import python_task


@python_task
def nothing_in_headrace(number: int) -> int:
    return number
