"""A pipeline for the tests that kill parts of it: 111 rows, no more and no less."""

import fault_steps as steps

from headrace import pipeline


@pipeline
def fragile(table: str, pause: float = 0.4) -> int:
    first = steps.add_rows.submit("a", table, 1, pause)
    parts = [steps.add_rows.submit(name, table, n, pause, after=first) for name, n in MORE]
    return steps.count_rows.submit([first, *parts]).result()


MORE = (("b", 10), ("c", 100))
