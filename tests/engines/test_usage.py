"""What an attempt's processes use together."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from headrace.engines.process_tree import members, read_processes
from headrace.engines.usage import UsageMeter

# Its child opens the pipe between `vfork` and `exec`, and waits there for somebody who writes.
STARTING_A_PROGRAM = """
import os, sys
held = bytearray(os.urandom(1)) * (200 * 2**20)
opening = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, file_actions=[opening])
print("started", flush=True)
os.waitpid(child, 0)
"""


def tree_of(pid, count):
    end = time.monotonic() + 120
    while len(found := members([pid], table=read_processes())) != count:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_a_program_that_is_just_being_started_does_not_count_its_parents_memory_again(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", STARTING_A_PROGRAM, str(pipe)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            parent, child = sorted(tree_of(process.pid, 2), key=lambda found: found.started)
            assert child.parent == parent.pid
            assert child.rss_pages > parent.rss_pages // 2  # the system counts it twice
            assert 200 <= UsageMeter(process.pid).sample().memory_mib < 300
            pipe.write_text("")
            assert process.stdout.readline() == b"started\n"
            assert UsageMeter(process.pid).sample().memory_mib < 300
        finally:
            for found in members([process.pid], table=read_processes()):
                os.kill(found.pid, 9)
