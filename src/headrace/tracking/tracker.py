"""`Tracker`: one MLflow run per pipeline run, one nested run per task."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.tracking.outbox import Outbox
from headrace.tracking.records import MAX_TAG_CHARS, RunLog, TableUse

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger("headrace.tracking")

PARENT_TAG = "mlflow.parentRunId"
OFFLINE_STORE = "mlflow.db"
NAME_TAG = "mlflow.runName"


class Tracker:
    """Logs runs to MLflow, within a bounded time, and loses nothing when MLflow is away.

    When the server does not answer at the start, the run is tracked in a store of its own under
    `outbox`, which a later run copies to the server. When it goes away in
    the middle, each record waits in the outbox.

    Args:
        tracking_uri: MLflow's address: `sqlite:///...`, `http://...`.
        artifact_root: Folder for artifacts of a new experiment; None lets the server choose.
        outbox: Folder for what could not be logged.
        timeout_s: How long one request may take.
        registry_uri: MLflow's model registry, when it is not the tracking store's own.
    """

    def __init__(
        self,
        tracking_uri: str,
        *,
        outbox: Path,
        artifact_root: str | None = None,
        timeout_s: float = 10,
        registry_uri: str | None = None,
    ) -> None:
        self.tracking_uri = tracking_uri
        self.artifact_root = artifact_root
        self.timeout_s = timeout_s
        self.registry_uri = registry_uri
        self.outbox = Outbox(outbox)
        self.offline = False
        self._client: MlflowClient | None = None
        self._lock = threading.RLock()

    def start_run(
        self,
        experiment: str,
        name: str,
        *,
        parent: str | None = None,
        tags: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
    ) -> str | None:
        """Start an MLflow run.

        Args:
            experiment: Name of the experiment; it is made when it is new.
            name: Name of the run.
            parent: MLflow run id of the pipeline's run, for a task.
            tags: Tags.
            params: Parameters, as strings.

        Returns:
            The MLflow run id, or None when nothing could be started; the run goes on without.
        """
        tags = {key: value[:MAX_TAG_CHARS] for key, value in (tags or {}).items()}
        if parent:
            tags[PARENT_TAG] = parent
        try:
            with self._lock:
                client = self._connect()
                run = client.create_run(
                    self._experiment_id(client, experiment), tags=tags | {NAME_TAG: name}
                )
        except Exception as error:  # noqa: BLE001 - tracking never stops a run
            log.warning("MLflow did not take the run %s: %s", name, first_line(error))
            return None
        run_id = str(run.info.run_id)
        if params:
            self.send(RunLog(mlflow_run_id=run_id, params=params, time_ms=now_ms()))
        return run_id

    def send(self, record: RunLog) -> bool:
        """Log a record, or keep it for later.

        Returns:
            Whether MLflow took it now.
        """
        try:
            with self._lock:
                self._log(record)
        except Exception as error:  # noqa: BLE001 - kept, and sent by a later run
            path = self.outbox.keep(record)
            log.warning("MLflow did not answer (%s); kept in %s", first_line(error), path)
            return False
        return True

    def flush(self) -> int:
        """Send what earlier runs had to keep; returns how many records went out."""
        if self.offline or not self.outbox.waiting():
            return 0
        with self._lock:
            return self.outbox.flush(self._log)

    def resend(self) -> int:
        """Copy runs that were tracked here while the server was away; returns how many."""
        if self.offline or not (self.outbox.folder / OFFLINE_STORE).exists():
            return 0
        from headrace.tracking.resend import resend_offline_runs

        try:
            with self._lock:
                return resend_offline_runs(self.outbox.folder, self._connect())
        except Exception as error:  # noqa: BLE001 - they stay, for a later run
            log.warning("earlier runs could not be sent to MLflow: %s", first_line(error))
            return 0

    def child_env(self, mlflow_run_id: str | None, experiment: str) -> dict[str, str]:
        """Environment variables that let a task's own `mlflow` calls land in its run."""
        env = {
            "MLFLOW_TRACKING_URI": self.tracking_uri,
            "MLFLOW_REGISTRY_URI": self.registry_uri or self.tracking_uri,
            "MLFLOW_EXPERIMENT_NAME": experiment,
            **self._limits(),
        }
        if mlflow_run_id:
            env["MLFLOW_RUN_ID"] = mlflow_run_id
        return env

    def experiment_id(self, experiment: str) -> str | None:
        """Id of the experiment, or None when it is not known."""
        try:
            with self._lock:
                return self._experiment_id(self._connect(), experiment)
        except Exception:  # noqa: BLE001 - only used for a link
            return None

    def _limits(self) -> dict[str, str]:
        return {
            "MLFLOW_HTTP_REQUEST_TIMEOUT": str(max(1, round(self.timeout_s))),
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }

    def _connect(self) -> MlflowClient:
        if self._client is None:
            if not self.offline and not self._answers():
                self._go_offline()
            for name, value in self._limits().items():
                os.environ.setdefault(name, value)
            _quiet_mlflow()
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(
                tracking_uri=self.tracking_uri,
                registry_uri=self.registry_uri or self.tracking_uri,
            )
        return self._client

    def _answers(self) -> bool:
        """Whether the server answers; a database file always does."""
        if not self.tracking_uri.startswith(("http://", "https://")):
            return True
        import urllib.error
        import urllib.request

        try:
            url = self.tracking_uri.rstrip("/") + "/health"
            with urllib.request.urlopen(url, timeout=self.timeout_s):  # noqa: S310 - checked above
                return True
        except urllib.error.HTTPError as error:
            # An answer behind a login or a proxy is an answer.
            return error.code < 500  # noqa: PLR2004
        except OSError:
            return False

    def _go_offline(self) -> None:
        folder = self.outbox.folder
        folder.mkdir(parents=True, exist_ok=True)
        log.warning(
            "MLflow at %s does not answer. This run is tracked in %s and sent later.",
            self.tracking_uri,
            folder,
        )
        self.offline = True
        self.registry_uri = None
        self.tracking_uri = f"sqlite:///{folder / OFFLINE_STORE}"
        self.artifact_root = str(folder / "artifacts")

    def _experiment_id(self, client: MlflowClient, name: str) -> str:
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.artifact_root is not None:
            location = f"{self.artifact_root.rstrip('/')}/{name}"
            if "://" not in location:
                location = Path(location).absolute().as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except Exception:
            # Another run may have made it between the two calls.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _log(self, record: RunLog) -> None:
        client = self._connect()
        log_record(client, record)


def log_record(client: MlflowClient, record: RunLog) -> None:
    """Log one record through MLflow's client; logging it twice leaves what logging it once does."""
    from mlflow.entities import Metric, Param, RunTag

    run_id = record.mlflow_run_id
    metrics = [Metric(name, value, record.time_ms, 0) for name, value in record.metrics.items()]
    params = [Param(name, value) for name, value in record.params.items()]
    tags = [RunTag(name, value[:MAX_TAG_CHARS]) for name, value in record.tags.items()]
    for start in range(0, max(len(params), 1), 100):  # a batch takes at most 100 parameters
        first = start == 0
        client.log_batch(
            run_id,
            metrics=metrics if first else [],
            params=params[start : start + 100],
            tags=tags if first else [],
        )
    if record.tables:
        client.log_inputs(run_id, datasets=[_dataset(use) for use in record.tables])
    for path, folder in record.artifacts:
        if Path(path).exists():
            client.log_artifact(run_id, path, folder or None)
    if record.status is not None:
        client.set_terminated(run_id, record.status, record.time_ms)


def _dataset(use: TableUse) -> Any:
    """A table version as MLflow's dataset with a Delta source."""
    import json

    from mlflow.entities import Dataset, DatasetInput, InputTag

    # What `DeltaDatasetSource.to_json()` writes, which leaves version 0 out.
    source = {"path": use.ref.uri, "delta_table_version": use.ref.version}
    return DatasetInput(
        dataset=Dataset(
            name=use.ref.name or use.ref.uri.rsplit("/", 1)[-1],
            digest=f"v{use.ref.version}-{use.ref.schema_hash[:8]}",
            source_type="delta_table",
            source=json.dumps(source),
            profile=json.dumps({"num_rows": use.ref.row_count, "num_files": use.ref.file_count}),
        ),
        tags=[InputTag("mlflow.data.context", use.context)],
    )


def _quiet_mlflow() -> None:
    """Keep the start of a new store, dozens of migration lines, out of the user's terminal."""
    for name in ("alembic", "mlflow.store.db.utils", "alembic.runtime.migration"):
        logging.getLogger(name).setLevel(logging.WARNING)


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type when it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
