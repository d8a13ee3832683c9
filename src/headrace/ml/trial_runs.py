"""Trials in MLflow: one run for the study, one below it for each trial. Three calls per trial."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.context import current_context
from headrace.tracking.tracker import first_line, now_ms

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

log = logging.getLogger("headrace.ml")

_STATUS = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}
_PLOTS = {
    "history": "plot_optimization_history",
    "importance": "plot_param_importances",
    "parallel_coordinates": "plot_parallel_coordinate",
    "slice": "plot_slice",
}
_LONGEST_PARAM = 500


class TrialRuns:
    """The runs of one study. MLflow that doesn't answer costs a warning, never a trial.

    Args:
        study: The study.
        settings: Parameters of the study's run.
    """

    def __init__(self, study: Study, settings: dict[str, Any]) -> None:
        import mlflow
        from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

        self._parent_tag = MLFLOW_PARENT_RUN_ID
        self._client = mlflow.MlflowClient()
        self._study = study
        self._open: dict[int, str] = {}
        outer = current_context().mlflow_run_id or getattr(mlflow.active_run(), "info", None)
        outer = outer if isinstance(outer, str | None) else outer.run_id
        if outer:
            self._experiment = self._client.get_run(outer).info.experiment_id
        else:
            from mlflow.tracking.fluent import _get_experiment_id

            self._experiment = _get_experiment_id()
        self.run_id = str(self._start(f"tune {study.study_name}", outer))
        self._log(self.run_id, params=settings)

    def begin(self, number: int) -> str | None:
        """Start the run of a trial; None when MLflow doesn't take it."""
        try:
            self._open[number] = self._start(f"trial {number}", self.run_id)
        except Exception as error:  # noqa: BLE001 - tracking never stops a trial
            log.warning("MLflow did not take the run of trial %d: %s", number, first_line(error))
        return self._open.get(number)

    def finish(self, trial: FrozenTrial) -> None:
        """Log what a trial came to and end its run."""
        run_id = self._open.pop(trial.number, None)
        if run_id is None:
            return
        state = trial.state.name
        tags = {"trial": trial.number, "state": state.lower(), **trial.user_attrs}
        steps = list(trial.intermediate_values.items())
        final = [] if trial.value is None else [("value", trial.value, 0)]
        metrics = [*(("intermediate", value, step) for step, value in steps), *final]
        with contextlib.suppress(Exception):
            self._log(run_id, params=trial.params, metrics=metrics, tags=tags)
        status = "KILLED" if trial.user_attrs.get("headrace.stopped") else _STATUS[state]
        with contextlib.suppress(Exception):
            self._client.set_terminated(run_id, status)

    def close(self, best: FrozenTrial | None, *, ended_well: bool) -> None:
        """Log the best and the plots, and end every run."""
        for run_id in self._open.values():
            with contextlib.suppress(Exception):
                self._client.set_terminated(run_id, "KILLED")
        self._open.clear()
        try:
            if best is not None and best.value is not None:
                params = {f"best.{name}": value for name, value in best.params.items()}
                metrics = [("best_value", best.value, 0)]
                self._log(self.run_id, params=params, metrics=metrics)
                if ended_well:
                    self._log_plots()
        except Exception as error:  # noqa: BLE001
            log.warning("MLflow did not take the study's results: %s", first_line(error))
        with contextlib.suppress(Exception):
            self._client.set_terminated(self.run_id, "FINISHED" if ended_well else "KILLED")

    def _start(self, name: str, parent: str | None) -> str:
        tags = {"mlflow.runName": name, "headrace.study": self._study.study_name}
        if parent:
            tags[self._parent_tag] = parent
        return str(self._client.create_run(self._experiment, tags=tags).info.run_id)

    def _log(
        self,
        run_id: str,
        *,
        params: dict[str, Any],
        metrics: list[tuple[str, float, int]] | None = None,
        tags: dict[str, Any] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = now_ms()
        self._client.log_batch(
            run_id,
            params=[Param(name, str(value)[:_LONGEST_PARAM]) for name, value in params.items()],
            metrics=[Metric(name, value, now, step) for name, value, step in metrics or []],
            tags=[
                RunTag(name, str(value)[:_LONGEST_PARAM]) for name, value in (tags or {}).items()
            ],
        )

    def _log_plots(self) -> None:
        """Optuna's plots as images; one that can't be drawn (too few trials, say) is left out."""
        import warnings

        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt
        from optuna.visualization import matplotlib as plots

        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, function in _PLOTS.items():
                try:
                    getattr(plots, function)(self._study)
                    plt.savefig(Path(folder, f"{name}.png"), dpi=120, bbox_inches="tight")
                except (ValueError, RuntimeError, ZeroDivisionError) as error:
                    log.info("no plot of the study's %s: %s", name, first_line(error))
                plt.close("all")
            self._client.log_artifacts(self.run_id, folder, "plots")
