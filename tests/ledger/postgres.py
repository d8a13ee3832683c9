"""A real PostgreSQL server for the tests: its own folder, 127.0.0.1 only, never as root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

_LIBC = ctypes.CDLL(None)


@dataclass
class PostgresServer:
    programs: Path
    folder: Path
    port: int
    password: str
    identity: dict
    process: subprocess.Popen | None = None

    @classmethod
    def start(cls):
        programs = _programs()
        identity = _identity()
        folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        if identity:
            os.chown(folder, identity["user"], identity["group"])
        server = cls(programs, folder, _free_port(), secrets.token_hex(8), identity)
        secret = folder / "password"
        secret.write_text(server.password)
        secret.chmod(0o644)
        server._run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "headrace",
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "-E",
            "UTF8",
            "--no-sync",
        )
        server.up()
        return server

    def up(self):
        """Start it from the main thread: it ends with the thread that started it, even by kill -9."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
        }
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-p", str(self.port)]
        command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (one system call, no locks)
                **self.identity,
            )
        self._wait_until_up()

    def _wait_until_up(self):
        import psycopg

        for _ in range(1200):
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            with contextlib.suppress(psycopg.OperationalError):
                address = self.url("postgres").replace("postgresql+psycopg", "postgresql")
                psycopg.connect(address, connect_timeout=5).close()
                return
            time.sleep(0.1)
        raise RuntimeError("the PostgreSQL server did not come up")

    def down(self):
        """Stop it at once, as a crash would."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(timeout=60)

    def stop(self):
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database):
        return f"postgresql+psycopg://headrace:{self.password}@127.0.0.1:{self.port}/{database}"

    def _run(self, program, *arguments):
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=180,
            **self.identity,
        )


def _end_with_parent():
    """In the child: a session that is killed leaves no server behind (Linux, PR_SET_PDEATHSIG)."""
    _LIBC.prctl(1, int(signal.SIGINT))


def _programs():
    found = [path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).parent)
    if not found:
        pytest.skip("no PostgreSQL server programs (initdb, postgres) on this machine")
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra: postgres)")
    return found[-1]


def _identity():
    """PostgreSQL refuses to run as root: whom to run it as."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses to run as root and there is no other user")
    raise AssertionError


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
