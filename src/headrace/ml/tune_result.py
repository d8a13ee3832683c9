"""What a study came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

StoppedBy = Literal["trials", "deadline", "failures", "stop"]


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """What `ml.tune` returns, also when no trial has finished.

    Attributes:
        study: Optuna's study, with all its trials.
        best: The best finished trial, or None when none has finished.
        stopped_by: `trials` (all were run), `deadline`, `failures` (too many in a row), or `stop`
            (a callback or a trial asked for it).
        mlflow_run_id: The study's MLflow run, or None when nothing is tracked.
    """

    study: Study
    best: FrozenTrial | None
    stopped_by: StoppedBy
    mlflow_run_id: str | None = None

    @property
    def best_params(self) -> dict[str, Any] | None:
        """Parameters of the best trial."""
        return None if self.best is None else dict(self.best.params)

    @property
    def best_value(self) -> float | None:
        """Value of the best trial."""
        return None if self.best is None else self.best.value

    def counts(self) -> dict[str, int]:
        """Trials by how they ended: `complete`, `pruned`, `fail`."""
        found = {"complete": 0, "pruned": 0, "fail": 0}
        for trial in self.study.get_trials(deepcopy=False):
            name = trial.state.name.lower()
            found[name] = found.get(name, 0) + 1
        return found

    def __str__(self) -> str:
        told = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        if self.best is None:
            return f"No trial finished ({told}); stopped by: {self.stopped_by}."
        return (
            f"Best: {self.best.value:g} with {self.best.params} in trial {self.best.number} "
            f"({told}); stopped by: {self.stopped_by}."
        )
