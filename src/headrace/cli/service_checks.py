"""Checks of what runs use: Prefect, MLflow, the ledger, the lake, and all their clocks."""

from __future__ import annotations

import os
import socket
import time
import urllib.error
import urllib.request
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.check import Check
from headrace.profiles.secrets import mask_password

if TYPE_CHECKING:
    from headrace.profiles.models import Environment

CLOCK_SKEW_S: Final = 5
TIMEOUT_S: Final = 5


def check_prefect(environment: Environment, state: Path) -> Check:
    """Whether the Prefect server answers, or one can be started."""
    from headrace.orchestration.prefect_api import configured_api, project_server
    from headrace.orchestration.servers import answers

    url = configured_api(environment)
    if url is not None:
        if answers(f"{url.rstrip('/')}/health", timeout_s=TIMEOUT_S):
            return Check("prefect", "ok", f"{url} answers")
        fix = "start it, or unset PREFECT_API_URL and [prefect] api_url to use a local one"
        return Check("prefect", "fault", f"{url} does not answer", fix)
    server = project_server(environment, state)
    running = server.find()
    if running:
        return Check("prefect", "ok", f"{running} answers")
    port = server.port
    if port is not None and not _is_free(port):
        return Check("prefect", "fault", f"port {port} is taken", "change [prefect] port")
    return Check("prefect", "ok", "not running; the first run, or `headrace up`, starts it")


def check_mlflow(environment: Environment) -> Check:
    """Whether the MLflow store is there, or can be made."""
    from headrace.orchestration.servers import answers

    uri = environment.mlflow.tracking_uri
    shown = mask_password(uri)
    if uri.startswith(("http://", "https://")):
        if answers(f"{uri.rstrip('/')}/health", timeout_s=TIMEOUT_S):
            return Check("mlflow", "ok", f"{shown} answers")
        fix = "start it, or change [mlflow] tracking_uri"
        return Check("mlflow", "warning", f"{shown} does not answer; runs are sent later", fix)
    return _database("mlflow", uri)


def check_ledger(environment: Environment) -> Check:
    """Whether the ledger can be opened."""
    from headrace.ledger.store import open_ledger

    url = environment.ledger_url
    if not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists():
        open_ledger(url, retry_s=TIMEOUT_S).close()
        return Check("ledger", "ok", mask_password(url))
    return _database("ledger", url)


def _database(name: str, url: str) -> Check:
    """Whether a SQLite file, or the folder that it will be made in, can be written."""
    path = Path(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite:///"):
        return Check(name, "ok", mask_password(url))
    if path.exists() and not os.access(path, os.W_OK):
        return Check(name, "fault", f"{path} can't be written", f"chmod u+w '{path}'")
    return Check(name, "ok", f"{path}{'' if path.exists() else ' (made by the first run)'}")


def check_lake(environment: Environment) -> Check:
    """Whether the lake can be reached."""
    from headrace.delta.location import filesystem_path, open_filesystem

    environment = environment.model_copy(update={"storage": environment.storage.fresh()})
    filesystem = open_filesystem(environment.lake, environment.storage)
    info = filesystem.get_file_info(filesystem_path(environment.lake))
    there = info.type.name == "Directory"
    if info.type.name == "File":
        return Check("lake", "fault", f"{environment.lake} is a file", "change lake")
    return Check("lake", "ok", f"{environment.lake}{'' if there else ' (made by the first table)'}")


def check_clock(environment: Environment, state: Path) -> Check:
    """Whether this clock agrees with the file system's and with those of the servers."""
    probe = state / f".doctor-clock-{os.getpid()}"
    skews: dict[str, float] = {}
    with suppress(OSError):
        before = time.time()
        probe.touch()
        skews[f"the disk of {state}"] = probe.stat().st_mtime - before
        probe.unlink()
    for url in (
        environment.mlflow.tracking_uri,
        environment.prefect.api_url,
        environment.storage.endpoint,
    ):
        if url and url.startswith(("http://", "https://")):
            skew = _server_skew(url)
            if skew is not None:
                skews[url] = skew
    worst = max(skews, key=lambda name: abs(skews[name]), default=None)
    if worst is not None and abs(skews[worst]) > CLOCK_SKEW_S:
        found = f"{worst} is {skews[worst]:+.0f} s away from this clock"
        return Check("clock", "warning", found, "set the clocks by NTP (timedatectl set-ntp true)")
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %z"))


def _server_skew(url: str) -> float | None:
    """How far the clock behind an HTTP address is ahead of this one, in seconds."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http(s) only
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
    except OSError:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() - time.time() if date else None
    except ValueError:
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
