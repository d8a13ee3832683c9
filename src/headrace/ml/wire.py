"""The line between a driver and its workers: a socket that tells at once when a worker is gone.

Workers of every engine connect back to the driver, so that trials and groups are handed out one
by one, wherever the worker runs.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

# A worker that died in the middle of the handshake must not keep the others out.
_HANDSHAKE_S = 20


@dataclass(frozen=True)
class Address:
    """Where a driver listens, and the key that its workers prove to have.

    Attributes:
        host: Name or number of the machine.
        port: TCP port.
        key: Shared secret of this one job.
    """

    host: str
    port: int
    key: bytes = field(repr=False)

    def connect(self) -> Connection[Any, Any]:
        """A worker's connection to the driver."""
        return Client((self.host, self.port), authkey=self.key)


class Switchboard:
    """The driver's end of all lines.

    Args:
        host: Address to listen on; 127.0.0.1 unless workers are on other machines.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), backlog=128)
        self.address = Address(host, int(self._listener.address[1]), key)
        self._lines: list[Connection[Any, Any]] = []
        self._fresh: queue.SimpleQueue[Connection[Any, Any]] = queue.SimpleQueue()
        self._bell_out, self._bell_in = socket.socketpair()
        self._closed = False
        threading.Thread(target=self._accept, name="headrace-ml-accept", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                line = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                continue
            threading.Thread(target=self._greet, args=(line,), daemon=True).start()

    def _greet(self, line: Connection[Any, Any]) -> None:
        """Let a worker prove that it has the key; others are hung up on."""
        from multiprocessing.connection import answer_challenge, deliver_challenge

        guard = threading.Timer(_HANDSHAKE_S, line.close)
        guard.daemon = True
        guard.start()
        try:
            deliver_challenge(line, self.address.key)
            answer_challenge(line, self.address.key)
        except Exception:  # noqa: BLE001 - whoever it was, it has no key
            with contextlib.suppress(OSError):
                line.close()
            return
        finally:
            guard.cancel()
        self._fresh.put(line)
        self.ring()

    def ring(self) -> None:
        """Wake `messages` up; any thread may."""
        with contextlib.suppress(OSError):
            self._bell_in.send(b"!")

    def messages(self, timeout_s: float | None) -> Iterator[tuple[Connection[Any, Any], Any]]:
        """What has come within the time: (line, message), and (line, None) for a line that ended.

        Args:
            timeout_s: Longest wait for the first message; None waits for a message or a bell.
        """
        ready = wait([*self._lines, self._bell_out], timeout_s)
        if self._bell_out in ready:
            self._bell_out.recv(4096)
        while not self._fresh.empty():
            self._lines.append(self._fresh.get())
        for line in [line for line in self._lines if line in ready]:
            try:
                message = line.recv()
            except (EOFError, OSError):
                self._lines.remove(line)
                yield line, None
            else:
                yield line, message

    def hang_up(self, line: Connection[Any, Any]) -> None:
        """End one line."""
        with contextlib.suppress(ValueError):
            self._lines.remove(line)
        with contextlib.suppress(OSError):
            line.close()

    def close(self) -> None:
        """End all lines; workers notice at their next word."""
        self._closed = True
        with contextlib.suppress(OSError):
            # A connection of our own wakes the thread that waits for one.
            socket.create_connection((self.address.host, self.address.port), 1).close()
        with contextlib.suppress(OSError):
            self._listener.close()
        while not self._fresh.empty():
            self._lines.append(self._fresh.get())
        for line in list(self._lines):
            self.hang_up(line)
        for bell in (self._bell_in, self._bell_out):
            bell.close()


def send(line: Connection[Any, Any], message: Any) -> bool:
    """Say something to a worker; False when it is gone."""
    try:
        line.send(message)
    except (OSError, ValueError):
        return False
    return True
