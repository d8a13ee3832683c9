"""Background servers on this machine: Prefect for runs, MLflow for looking at what was tracked.

A server is started once, outlives the command that started it, and is found again through a small
file in the project's state folder. Two commands at once start one server.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from headrace.engines.process_tree import read_process
from headrace.exceptions import PortInUseError, ServerStartError

START_LIMIT_S = 300.0
"""How long a server may take to answer. A new Prefect server takes 31 s on two idle cores."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """One kind of background server.

    Attributes:
        name: `prefect` or `mlflow`.
        folder: Where its state file, its lock and its log are kept.
        port: The port that the user asked for, or None for any free one.
        usual_port: Tried first when the user asked for none.
        health_path: What to ask to learn whether it is up.
        command: Builds the command line from the port.
        env: Builds the environment variables on top of this process's own from the port.
        start_limit_s: How long it may take to answer.
    """

    name: str
    folder: Path
    usual_port: int
    health_path: str
    command: Callable[[int], list[str]]
    port: int | None = None
    env: Callable[[int], dict[str, str]] = lambda _: {}
    start_limit_s: float = START_LIMIT_S

    @property
    def state_file(self) -> Path:
        """Remembers the running server: process id, its start time, address."""
        return self.folder / f"{self.name}.json"

    @property
    def log_file(self) -> Path:
        """What the server prints."""
        return self.folder / f"{self.name}.log"

    def find(self) -> str | None:
        """Address of the running server, or None."""
        state = self._state()
        if state is None or _process(state) is None:
            return None
        url = str(state["url"])
        return url if answers(url + self.health_path) else None

    def ensure(self, *, on_wait: Callable[[float], None] | None = None) -> str:
        """Address of the server; it is started when it does not run.

        Args:
            on_wait: Called about twice a second with the seconds waited so far.

        Raises:
            PortInUseError: The port that was asked for belongs to another program.
            ServerStartError: It did not answer within `start_limit_s`, or it ended at once.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder / f"{self.name}.lock"):
            return self.find() or self._start(on_wait)

    def stop(self) -> bool:
        """End the server and every process it started; whether one was running."""
        state = self._state()
        process = _process(state) if state else None
        if process is not None:
            _end_tree(process)
        self.state_file.unlink(missing_ok=True)
        return process is not None

    def _start(self, on_wait: Callable[[float], None] | None) -> str:
        old = self._state()
        if old is not None and (stale := _process(old)) is not None:
            # It is there but no longer answers; a second one beside it would share its database.
            _end_tree(stale)
        for last_try in (False, False, True):
            try:
                return self._start_at(self._pick_port(), on_wait)
            except ServerStartError as error:
                # Somebody took the port between the look at it and the server's own start.
                lost_port = self.port is None and "address already in use" in error.tail
                if last_try or not lost_port:
                    raise
        raise AssertionError("the last try returns or raises")

    def _start_at(self, port: int, on_wait: Callable[[float], None] | None) -> str:
        url = f"http://127.0.0.1:{port}"
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                self.command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env(port)},
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            self._remember(process.pid, url)
            self._wait(process, port, url, on_wait)
        except BaseException:
            self.stop()
            raise
        return url

    def _remember(self, pid: int, url: str) -> None:
        seen = read_process(pid)
        state = {"pid": pid, "started": seen.started if seen else None, "url": url}
        partial = self.state_file.with_suffix(".partial")
        partial.write_text(json.dumps(state), encoding="utf-8")
        partial.replace(self.state_file)

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        port: int,
        url: str,
        on_wait: Callable[[float], None] | None,
    ) -> None:
        begin = time.monotonic()
        # An answer alone may come from another program that took the port first.
        while not (answers(url + self.health_path) and _owns(process.pid, port)):
            waited = time.monotonic() - begin
            if process.poll() is not None or waited > self.start_limit_s:
                raise ServerStartError(
                    name=self.name,
                    exit_code=process.poll(),
                    waited_s=round(waited),
                    log_file=str(self.log_file),
                    tail=_tail(self.log_file),
                )
            if on_wait is not None:
                on_wait(waited)
            time.sleep(0.5)

    def _pick_port(self) -> int:
        if self.port is not None:
            if not _is_free(self.port):
                raise PortInUseError(port=self.port, server=self.name, owner=_owner(self.port))
            return self.port
        return self.usual_port if _is_free(self.usual_port) else _any_free_port()

    def _state(self) -> dict[str, Any] | None:
        try:
            state: dict[str, Any] = json.loads(self.state_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state


def prefect_server(
    state: Path, *, port: int | None = None, start_limit_s: float = START_LIMIT_S
) -> Server:
    """The project's own Prefect server, with its database under `state`."""
    home = state / "prefect"
    return Server(
        name="prefect",
        folder=state / "servers",
        port=port,
        start_limit_s=start_limit_s,
        usual_port=4200,
        health_path="/api/health",
        command=lambda port: [
            sys.executable,
            *("-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)),
        ],
        env=lambda port: {
            "PREFECT_HOME": str(home),
            # Else its pages look for the API at the usual port.
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
            "DO_NOT_TRACK": "1",
        },
    )


def mlflow_server(
    state: Path, *, tracking_uri: str, artifact_root: str | None, port: int | None = None
) -> Server:
    """A page over the local MLflow store."""
    return Server(
        name="mlflow",
        folder=state / "servers",
        port=port,
        usual_port=5000,
        health_path="/health",
        command=lambda port: [
            sys.executable,
            *("-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--backend-store-uri", tracking_uri),
            *(("--default-artifact-root", artifact_root) if artifact_root else ()),
        ],
        # Its job workers cost 1.5 GB and serve features that nothing here uses.
        env=lambda _: {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
    )


def answers(url: str, *, timeout_s: float = 5) -> bool:
    """Whether a server answers at `url`, with any status below 500."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s):  # noqa: S310 - our own http address
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500  # noqa: PLR2004
    except OSError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _process(state: dict[str, Any]) -> psutil.Process | None:
    """The process that a state file speaks of, unless its id has since gone to another one."""
    try:
        seen = read_process(int(state["pid"]))
        # In ticks since the boot: psutil's times move when the wall clock is set.
        if seen is None or seen.started != state["started"] or seen.state in "ZX":
            return None
        return psutil.Process(seen.pid)
    except (psutil.Error, KeyError, TypeError, ValueError):
        return None


def _end_tree(process: psutil.Process, *, grace_s: float = 10) -> None:
    try:
        tree = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in tree:
        _ignore_gone(member.terminate)
    _, alive = psutil.wait_procs(tree, timeout=grace_s)
    for member in alive:
        _ignore_gone(member.kill)
    psutil.wait_procs(alive, timeout=grace_s)


def _ignore_gone(action: Callable[[], object]) -> None:
    try:
        action()
    except psutil.NoSuchProcess:
        return


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _owns(pid: int, port: int) -> bool:
    """Whether a process, or one that it started, listens at the port."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for process in tree
            for connection in process.net_connections("tcp")
        )
    except psutil.Error:
        return False


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _owner(port: int) -> str:
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return "unknown process"
    for connection in connections:
        if connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
            except psutil.Error:
                break
    return "unknown process"


def _tail(path: Path, count: int = 15) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])
