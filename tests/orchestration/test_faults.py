"""Things happen to a run at random moments: afterwards it can be repaired, nothing lost, nothing doubled.

Two of the quick kinds by chance in each test run; `--fault-rounds=N` asks for N rounds of all
kinds, and `--fault-seed=N` replays the kinds and moments of an earlier run.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import psutil
import pytest
import sqlalchemy as sa

from headrace.ledger.store import open_ledger
from tests.ledger.conftest import postgres_server
from tests.orchestration.fragile import (
    LEASE_S,
    PATIENCE_S,
    Fragile,
    kill,
    lock,
    stop_between_writes,
)

__all__ = ["postgres_server"]

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(1800)]

CHANCES = 2
QUICK = ("kill-flow", "kill-supervisor", "kill-task", "kill-serve", "lose-postgres", "set-clock")
KINDS = (*QUICK, "stop-flow", "lock-ledger", "fill-disk", "kill-prefect")


def pytest_generate_tests(metafunc):
    if "kind" not in metafunc.fixturenames:
        return
    rounds = metafunc.config.getoption("fault_rounds")
    seed = metafunc.config.getoption("fault_seed")
    few = sorted(random.Random(seed).sample(QUICK, CHANCES))
    cases = [(kind, number) for number in range(rounds) for kind in KINDS]
    metafunc.parametrize(("kind", "round_number"), cases or [(kind, 0) for kind in few])


@pytest.fixture
def chance(request, kind, round_number):
    seed = request.config.getoption("fault_seed")
    print(f"--fault-seed={seed} -k {kind}")
    return random.Random(f"{seed} {round_number} {kind}")


@pytest.fixture
def fragile(project, ledger, notes, tmp_path, chance):
    made = Fragile(
        project=project,
        ledger=ledger,
        lake=project / ".headrace" / "lake",
        notes=notes,
        log=tmp_path / "log.txt",
        table=f"t{chance.randrange(10**12)}",
    )
    yield made
    made.close()


@pytest.fixture
def database(project):
    return project / ".headrace" / "ledger.db"


def test_whatever_happens_a_repair_makes_the_run_whole(request, kind, fragile, chance):
    happen = request.getfixturevalue(kind.replace("-", "_"))
    try:
        happen(fragile, chance)
        print("passes:", fragile.repair_until_green())
        fragile.check()
    except BaseException:
        print(fragile.log.read_text()[-5000:])
        raise


def killing(part):
    def happen(fragile, chance):
        process = fragile.start()
        time.sleep(chance.uniform(0, 3))
        kill(process.pid, part)
        process.wait(timeout=PATIENCE_S)

    return happen


@pytest.fixture
def kill_flow():
    return killing("flow")


@pytest.fixture
def kill_supervisor():
    return killing("supervisor")


@pytest.fixture
def kill_task():
    return killing("task")


@pytest.fixture
def kill_serve():
    """What serves is killed; the run that it has started goes on to its end."""

    def happen(fragile, chance):
        fragile.wait()
        serve = fragile.python("-m", "headrace", "serve", "fault_flows.fragile")
        fragile.wait_for_work(serve)
        time.sleep(chance.uniform(0, 3))
        serve.kill()
        serve.wait()
        assert fragile.repair_until_green() == 1

    return happen


@pytest.fixture
def kill_prefect(fragile, tmp_path):
    """A server of the run's own is killed with all that it has started."""
    state = tmp_path / "state"
    fragile.environment = {"HEADRACE_STATE": str(state), "PREFECT_API_URL": ""}
    fragile.lake = state / "lake"

    def happen(fragile, chance):
        fragile.ledger = open_ledger(f"sqlite:///{state / 'ledger.db'}")
        process = fragile.start(1.0)
        time.sleep(chance.uniform(0, 3))
        known = json.loads((state / "servers" / "prefect.json").read_text())
        server = psutil.Process(known["pid"])
        for part in [server, *server.children(recursive=True)]:
            part.kill()
        process.wait(timeout=PATIENCE_S)

    yield happen
    fragile.python("-m", "headrace", "down").wait(timeout=PATIENCE_S)
    fragile.ledger.close()


@pytest.fixture
def stop_flow(database):
    """The flow stands still past its lease; when it goes on, it changes nothing any more."""

    def happen(fragile, chance):
        process = fragile.start(1.5)
        time.sleep(chance.uniform(0, 2))
        stop_between_writes(process, database)
        fragile.repair_until_green()
        before = fragile.ledger.attempts(fragile.run_id)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=PATIENCE_S) != 0
        assert fragile.ledger.attempts(fragile.run_id) == before

    return happen


@pytest.fixture
def lock_ledger(database):
    """Somebody holds the ledger's lock: shorter than a lease, which costs nothing, or longer."""

    def happen(fragile, chance):
        process = fragile.start()
        time.sleep(chance.uniform(0, 1))
        is_long = chance.random() < 0.5
        lock(database, 30 if is_long else LEASE_S / 2)
        process.wait(timeout=PATIENCE_S)
        assert is_long or fragile.repair_until_green() == 1

    return happen


@pytest.fixture
def lose_postgres(fragile, postgres_server):
    """The ledger's server is gone for longer than a lease."""
    name = f"fault{fragile.table}"
    engine = sa.create_engine(postgres_server.url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
    engine.dispose()
    url = f"{postgres_server.url('postgres')}?options=-csearch_path%3D{name}"
    fragile.environment = {"HEADRACE_LEDGER_URL": url}

    def happen(fragile, chance):
        fragile.ledger = open_ledger(url)
        process = fragile.start()
        time.sleep(chance.uniform(0, 2))
        postgres_server.down()
        time.sleep(chance.choice([LEASE_S / 2, 30]))
        postgres_server.up()
        process.wait(timeout=PATIENCE_S)

    yield happen
    fragile.ledger.close()


@pytest.fixture
def fill_disk(fragile, tmp_path):
    """Logs, ledger, results and tables are on a disk that is full for a while."""
    state = tmp_path / "disk"
    state.mkdir()
    mounted = subprocess.run(
        [shutil.which("mount") or "false", "-t", "tmpfs", "-o", "size=64m", "none", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a disk that can be filled needs the right to mount one (root)")
    fragile.environment = {"HEADRACE_STATE": str(state)}
    fragile.lake = state / "lake"

    def happen(fragile, chance):
        fragile.ledger = open_ledger(f"sqlite:///{state / 'ledger.db'}")
        process = fragile.start()
        time.sleep(chance.uniform(0, 1))
        fill(state / "filler")
        time.sleep(chance.choice([2, LEASE_S * 2]))
        (state / "filler").unlink()
        process.wait(timeout=PATIENCE_S)

    yield happen
    fragile.close()
    fragile.ledger.close()
    subprocess.run(["umount", "-l", str(state)], check=True)


def fill(path):
    """Take all the room that is left, to the last block."""
    with path.open("wb", buffering=0) as filler:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    filler.write(bytes(size))


SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long back(void) {
  const char *file = getenv("TEST_CLOCK_FILE");
  return file && access(file, F_OK) == 0 ? 3600 : 0;
}
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, at);
  if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec -= back();
  return code;
}
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  int code = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return code;
}
time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"""


@pytest.fixture
def set_clock(fragile, tmp_path):
    """The wall clock is set back an hour, for the flow and for what it starts."""
    compiler = shutil.which("cc") or pytest.skip("a clock that goes wrong needs a C compiler")
    source, library, file = (tmp_path / name for name in ("clock.c", "clock.so", "back"))
    source.write_text(SHIFT)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    fragile.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK_FILE": str(file)}

    def happen(fragile, chance):
        process = fragile.start()
        time.sleep(chance.uniform(0, 2))
        file.touch()
        kills = chance.random() < 0.5
        if kills:
            kill(process.pid, "flow")
        process.wait(timeout=PATIENCE_S)
        assert kills or fragile.repair_until_green() == 1
        taken = [
            a.usage["wall_s"]
            for a in fragile.ledger.attempts(fragile.run_id)
            if a.usage and "wall_s" in a.usage
        ]
        assert taken
        assert all(0 <= seconds < PATIENCE_S for seconds in taken)

    return happen
