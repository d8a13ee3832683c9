"""Whether a lease is over, without trusting any clock on a wall.

A lease carries the number of its heartbeats and the monotonic time of the last one by its holder's
clock. An observer on the same boot of the same machine reads that clock too and compares. Any other
observer watches: a count that has not moved for the length of the lease, by the observer's own
monotonic clock, means that the holder is gone. docs/decisions/0005-leases.md tells why.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

UNKNOWN_BOOT = "unknown"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A monotonic clock and what it can be compared with.

    Attributes:
        id: `boot/namespace`: the same for every process that reads the very same clock.
        now: Seconds on it. It stands still while the machine sleeps, for holder and observer alike.
    """

    id: str
    now: Callable[[], float] = time.monotonic

    @property
    def boot(self) -> str:
        """The boot of the machine, or `unknown` where the system does not tell."""
        return self.id.partition("/")[0]


@cache
def own_clock() -> Clock:
    """The clock of this process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # Containers may shift the monotonic clock in a time namespace of their own.
        namespace = str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return Clock(id=f"{UNKNOWN_BOOT}/{uuid.uuid4().hex}")
    return Clock(id=f"{boot}/{namespace}")


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The last heartbeat of one lease, as the ledger has it.

    Attributes:
        holder: What holds it, such as `("attempt", 17)`.
        token: Fence token; None means that nobody holds it.
        beat: How often it was renewed.
        clock: Id of the holder's clock.
        at: Seconds on that clock.
        lease_s: Length of the lease.
    """

    holder: tuple[str, int]
    token: str | None
    beat: int
    clock: str | None
    at: float | None
    lease_s: float


@dataclass(kw_only=True)
class LeaseWatch:
    """Tells live leases from dead ones, and remembers what it has seen of other machines.

    Args:
        clock: The observer's clock.
        one_machine: The ledger cannot be shared between machines (an SQLite file), so that a
            lease from another boot is a lease from before a restart.
    """

    clock: Clock = field(default_factory=own_clock)
    one_machine: bool = False
    _seen: dict[tuple[str, int], tuple[str, int, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_live(self, beat: Beat, now: float | None = None) -> bool:
        """Whether the holder may still be at work.

        Args:
            beat: The lease's last heartbeat.
            now: Seconds on the observer's clock, if not the present.
        """
        return self.left_s(beat, now) > 0

    def left_s(self, beat: Beat, now: float | None = None) -> float:
        """Seconds after which the lease is over if no heartbeat comes; 0 when it is over."""
        if beat.token is None:
            return 0.0
        moment = self.clock.now() if now is None else now
        # A beat from the future comes from a copy of this machine: clones share their boot id.
        if beat.clock == self.clock.id and beat.at is not None and beat.at <= moment:
            return max(0.0, beat.lease_s - (moment - beat.at))
        if self.one_machine and self._other_boot(beat.clock):
            return 0.0
        return max(0.0, beat.lease_s - (moment - self._first_seen(beat, moment)))

    def _other_boot(self, clock: str | None) -> bool:
        boots = {(clock or UNKNOWN_BOOT).partition("/")[0], self.clock.boot}
        return UNKNOWN_BOOT not in boots and len(boots) > 1

    def _first_seen(self, beat: Beat, moment: float) -> float:
        """When this observer first saw this very heartbeat."""
        with self._lock:
            token, count, since = self._seen.get(beat.holder, (None, -1, moment))
            if token != beat.token or count != beat.beat:
                since = moment
                self._seen[beat.holder] = (beat.token or "", beat.beat, moment)
            return since

    def forget(self, holder: tuple[str, int]) -> None:
        """Drop what was seen of a lease that has ended."""
        with self._lock:
            self._seen.pop(holder, None)


@cache
def own_host() -> str:
    """Name of this machine, for people."""
    return socket.gethostname()
