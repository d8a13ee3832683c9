"""Advice on how many trials run at once: pure, from three numbers to texts."""

from __future__ import annotations

from typing import Final

# Trials per worker below which a sampler learns too little from what came before.
_PER_WORKER: Final = 4


def advise_parallelism(parallelism: int, *, slots: int, n_trials: int | None) -> list[str]:
    """What is unwise about running `parallelism` trials at once.

    Args:
        parallelism: Trials at once.
        slots: Workers that the profile has cores for.
        n_trials: Trials of the study; None for as many as the time allows.

    Returns:
        A sentence for each rule that is broken; empty when all is well.

    Example:
        >>> advise_parallelism(2, slots=2, n_trials=32)
        []
    """
    found = []
    if parallelism > slots:
        found.append(
            f"parallelism={parallelism}, but there are {slots} slots: the others wait, or slow "
            f"each other down. Use parallelism={slots}."
        )
    if n_trials is not None and parallelism > 1 and n_trials < _PER_WORKER * parallelism:
        fewer = max(1, n_trials // _PER_WORKER)
        found.append(
            f"{n_trials} trials at parallelism={parallelism} are fewer than {_PER_WORKER} for "
            f"each worker: most are chosen before any has ended, as by a random search. Use "
            f"parallelism={fewer}, or n_trials={_PER_WORKER * parallelism}."
        )
    return found
