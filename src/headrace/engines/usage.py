"""What an attempt's processes use, all together: time, CPU, memory."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.engines.process_tree import Process, members, read_process, read_processes

_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# An exact look costs a walk over all pages, so it waits for a change of this share ...
_CHANGE: Final = 0.04
# ... or for this time.
_EXACT_S: Final = 5.0

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_KCMP: Final = {"x86_64": 312, "aarch64": 272}
_KCMP_VM: Final = 1


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What an attempt has used so far.

    Attributes:
        wall_s: Seconds since its start.
        cpu_s: CPU seconds of all its processes, those that have ended included.
        memory_mib: Memory now; what processes share is counted once.
        peak_memory_mib: The most that was seen.
        processes: How many processes it has now.
        read_bytes: What its processes read by system calls: files, pipes, sockets. None until the
            end, and where the system does not tell.
        written_bytes: What they wrote.
        spilled_bytes: What Spark spilled to disk, or None.
        spark_tasks: Tasks that Spark ran, or None.
        ray_tasks: Tasks that Ray ran, or None.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_mib: float = 0.0
    peak_memory_mib: float = 0.0
    processes: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    spilled_bytes: int | None = None
    spark_tasks: int | None = None
    ray_tasks: int | None = None


@dataclass
class UsageMeter:
    """Measure one attempt again and again.

    Args:
        root: Process id of the attempt's supervisor.

    Attributes:
        usage: The last figures.
        largest: The largest process at the last exact look, in words.
        seen: The processes of the last look.
    """

    root: int
    usage: Usage = field(default_factory=Usage)
    largest: str = ""
    seen: list[Process] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _exact_at: float = 0.0
    _exact_rss_kib: int = 0
    _exact_kib: int = 0

    def sample(self) -> Usage:
        """Look at the process tree now. It costs a few milliseconds."""
        tree = self.seen = members([self.root], table=read_processes())
        memory_mib = self._memory_kib(tree) / 1024
        cpu_s = sum(process.cpu_ticks for process in tree) / _TICKS
        self.usage = Usage(
            wall_s=time.monotonic() - self._began,
            # A process whose end nobody waits for takes its time with it: never go back.
            cpu_s=max(self.usage.cpu_s, cpu_s),
            memory_mib=memory_mib,
            peak_memory_mib=max(self.usage.peak_memory_mib, memory_mib),
            processes=len(tree),
        )
        return self.usage

    def finish(self, exit_file: Path) -> Usage:
        """The final figures, with what the supervisor counted to the end."""
        try:
            counted = json.loads(exit_file.read_bytes())
        except (OSError, ValueError):
            counted = {"cpu_s": 0.0, "peak_kib": 0}
        self.usage = Usage(
            wall_s=time.monotonic() - self._began,
            cpu_s=max(self.usage.cpu_s, counted["cpu_s"]),
            # A short task ends between two looks; the system knows its largest process.
            peak_memory_mib=max(self.usage.peak_memory_mib, counted["peak_kib"] / 1024),
            read_bytes=counted.get("read_bytes"),
            written_bytes=counted.get("written_bytes"),
        )
        return self.usage

    def _memory_kib(self, tree: list[Process]) -> int:
        """Memory of the tree; the exact sum is taken when the cheap one has changed."""
        rss_kib = sum(process.rss_pages for process in tree) * _PAGE_KIB
        now = time.monotonic()
        changed = abs(rss_kib - self._exact_rss_kib) > _CHANGE * self._exact_rss_kib
        if changed or now - self._exact_at > _EXACT_S:
            shares = {process: _pss_kib(process) for process in _with_own_memory(tree)}
            self._exact_kib, self._exact_rss_kib = sum(shares.values()), rss_kib
            self._exact_at = now
            self.largest = _describe_largest(shares.items())
        return self._exact_kib


def _with_own_memory(tree: list[Process]) -> list[Process]:
    """The processes without those that still run in their parent's memory.

    A JVM starts a program by `vfork`: until the child has become that program the system shows the
    JVM's memory twice, on a busy machine for long enough to be seen.
    """
    by_pid = {process.pid: process for process in tree}
    return [
        process
        for process in tree
        if process.parent not in by_pid
        or process.rss_pages < by_pid[process.parent].rss_pages // 2
        or not _same_memory(process.pid, process.parent)
    ]


def _same_memory(one: int, other: int) -> bool:
    """Whether two processes have one address space, as `kcmp(2)` tells; False where it can't."""
    number = _KCMP.get(platform.machine())
    return number is not None and _LIBC.syscall(number, one, other, _KCMP_VM, 0, 0) == 0


def _pss_kib(process: Process) -> int:
    """Resident memory with shared pages divided among those that share them."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as handle:  # noqa: PTH123
            for line in handle:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1])
    except OSError:
        pass
    # Another user's process, or one that has just ended.
    return process.rss_pages * _PAGE_KIB if read_process(process.pid) else 0


def _describe_largest(shares: Iterable[tuple[Process, int]]) -> str:
    process, kib = max(shares, key=lambda pair: pair[1], default=(None, 0))
    return f"{process.name} (process {process.pid}) with {kib // 1024} MiB" if process else ""
