"""The MLflow runs of a fit: one for the whole, one below it for each fold and parameter map."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any

from headrace.context import current_context
from headrace.tracking.tracker import first_line, now_ms

log = logging.getLogger("headrace.ml")

_LONGEST = 500


class FitRuns:
    """Runs that threads may begin and end. MLflow that doesn't answer costs a warning.

    Args:
        name: Name of the run of the whole.
        settings: Its parameters.

    Attributes:
        run_id: The run of the whole; None when MLflow did not take it.
    """

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        import mlflow

        self._client = mlflow.MlflowClient()
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._experiment = ""
        self.run_id: str | None = None
        try:
            self._experiment, outer = self._outer(mlflow)
            self.run_id = self._start(name, settings, {}, outer)
        except Exception as error:  # noqa: BLE001 - tracking never stops a fit
            log.warning("MLflow did not take the run of %s: %s", name, first_line(error))

    def begin(self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> str | None:
        """Start a run below that of the whole; None when MLflow doesn't take it."""
        if self.run_id is None:
            return None
        try:
            found = self._start(name, params, tags, self.run_id)
        except Exception as error:  # noqa: BLE001
            log.warning("MLflow did not take the run of %s: %s", name, first_line(error))
            return None
        with self._lock:
            self._open.add(found)
        return found

    def end(
        self,
        run_id: str | None,
        *,
        metric: tuple[str, float] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """End a run with its metric, or with its error."""
        if run_id is None:
            return
        with self._lock:
            self._open.discard(run_id)
        with contextlib.suppress(Exception):
            if metric is not None:
                self._client.log_metric(run_id, *metric)
            if error is not None:
                text = f"{type(error).__name__}: {first_line(error)}"[:_LONGEST]
                self._client.set_tag(run_id, "headrace.error", text)
            self._client.set_terminated(run_id, "FAILED" if error is not None else "FINISHED")

    def finish(self, params: Mapping[str, Any], metric: str, value: float) -> None:
        """Log the best parameters and their metric to the run of the whole."""
        if self.run_id is None:
            return
        with contextlib.suppress(Exception):
            self._log(self.run_id, {f"best.{name}": item for name, item in params.items()})
            self._client.log_metric(self.run_id, f"best_{metric}", value)

    def close(self, *, ended_well: bool) -> None:
        """End every run that is still open."""
        for run_id in self._open:
            with contextlib.suppress(Exception):
                self._client.set_terminated(run_id, "KILLED")
        if self.run_id is not None:
            with contextlib.suppress(Exception):
                self._client.set_terminated(self.run_id, "FINISHED" if ended_well else "FAILED")

    def _outer(self, mlflow: Any) -> tuple[str, str | None]:
        """The experiment, and the run that the whole belongs to."""
        outer = current_context().mlflow_run_id
        if outer is None and mlflow.active_run() is not None:
            outer = mlflow.active_run().info.run_id
        if outer:
            return str(self._client.get_run(outer).info.experiment_id), outer
        from mlflow.tracking.fluent import _get_experiment_id

        return str(_get_experiment_id()), None

    def _start(
        self, name: str, params: Mapping[str, Any], tags: Mapping[str, Any], parent: str | None
    ) -> str:
        from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

        told = {key: str(value) for key, value in tags.items()} | {MLFLOW_RUN_NAME: name}
        if parent:
            told[MLFLOW_PARENT_RUN_ID] = parent
        run = self._client.create_run(self._experiment, start_time=now_ms(), tags=told)
        self._log(run.info.run_id, params)
        return str(run.info.run_id)

    def _log(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        found = [Param(name, str(value)[:_LONGEST]) for name, value in params.items()]
        self._client.log_batch(run_id, params=found)
