"""A real PostgreSQL server for the tests: its own folder, 127.0.0.1 only, never as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class PostgresServer:
    programs: Path
    folder: Path
    port: int
    password: str
    identity: dict

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
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c fsync=off -c max_connections=200 -c shared_buffers=32MB"
        )
        self._run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-w",
            "-t",
            "120",
            "-l",
            str(self.folder / "log"),
            "-o",
            options,
            "start",
        )

    def down(self, mode="immediate"):
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def stop(self):
        with contextlib.suppress(subprocess.CalledProcessError):
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


def _programs():
    found = [path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).parent)
    if not found:
        pytest.skip("no PostgreSQL server programs (initdb, pg_ctl) on this machine")
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
