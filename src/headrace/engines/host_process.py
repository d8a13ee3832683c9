"""Inside the host process of a shared engine: start it, tell its address, keep it until TERM."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.engines.loading import add_root
from headrace.engines.private_file import write_private
from headrace.engines.shared import SharedSpec
from headrace.engines.spec import RESULT_FILE
from headrace.engines.task_process import EXIT_FAILED, describe_error, set_up_streams
from headrace.profiles.models import RayProfile, SparkProfile


def run_host(spec_path: Path) -> int:
    """Keep the engine of a spec until this process is told to end."""
    set_up_streams()
    spec = SharedSpec.read(spec_path)
    add_root(spec.root, for_workers=True)
    try:
        with _open(spec) as address:
            _tell(spec, {"ok": True, "address": address})
            while True:
                signal.pause()
    except Exception as error:  # noqa: BLE001  the flow's process raises it again
        _tell(spec, describe_error(error, "setup"))
        return EXIT_FAILED


def _tell(spec: SharedSpec, value: dict[str, Any]) -> None:
    write_private(spec.folder / RESULT_FILE, json.dumps(value))


@contextmanager
def _open(spec: SharedSpec) -> Iterator[str]:
    scratch = spec.scratch or spec.folder
    if isinstance(spec.profile, RayProfile):
        from headrace.engines.ray import open_ray

        with open_ray(spec.profile, import_paths=[spec.root], folder=scratch / "r") as info:
            yield info["address"]
    else:
        with _open_connect_server(spec, spec.profile) as address:
            yield address


@contextmanager
def _open_connect_server(spec: SharedSpec, profile: SparkProfile) -> Iterator[str]:
    from headrace.engines.spark import open_spark

    token = secrets.token_urlsafe(24)
    server = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    wanted = profile.model_copy(update={"spark_conf": {**server, **profile.spark_conf}})
    with open_spark(
        wanted,
        storage=spec.storage,
        app_name=f"headrace.{profile.name}",
        scratch=spec.folder / "spark",
        secret_conf={"spark.connect.authenticate.token": token},
    ) as session:
        # The client sends a token without TLS to this very host name only.
        yield f"sc://localhost:{_connect_port(session)}/;token={token}"


def _connect_port(session: Any) -> int:
    """The port that the server in this JVM has taken; it tells nobody but Scala code."""
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    service = session._jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)  # noqa: SLF001
    return int(service.server().getPort())
