"""Commits on S3 by Spark beside other writers: nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.engines.log_store import LOG_STORE_JAR
from tests.bridge.s3_store import open_store

ROOT = Path(__file__).parents[2]
# Hundreds with `make test-stack`; enough here to meet many conflicts.
COMMITS = int(os.environ.get("HEADRACE_TEST_COMMITS", "5"))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


def race(store, commits: int, log_store: str) -> dict:
    keys = {name: getattr(store, name) for name in ("endpoint", "access_key", "secret_key")}
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("commit_race.py"),
            json.dumps(keys),
            str(commits),
            log_store,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spark
@pytest.mark.s3
def test_every_acknowledged_row_is_there_exactly_once_and_spark_reads_the_same(store):
    found = race(store, COMMITS, "ours")
    assert found["acknowledged"] == dict.fromkeys(
        ("spark", "another_spark", "rust", "own"), COMMITS
    )
    assert found["lost"] == []
    assert found["doubled"] == []
    assert found["version"] == 4 * COMMITS
    assert found["same_for_spark"]


@pytest.mark.spark
@pytest.mark.s3
def test_without_it_hadoop_replaces_a_commit_that_another_writer_has_made(tmp_path):
    with open_store(tmp_path / "s3") as store:
        found = race(store, 1, "io.delta.storage.S3SingleDriverLogStore")
    assert found["replaced"]


def test_the_jar_is_compiled_from_the_source(tmp_path):
    """A JDK compiles it anew; where there is none, the names at least are right."""
    with zipfile.ZipFile(LOG_STORE_JAR) as jar:
        kept = {name: jar.read(name) for name in jar.namelist() if name.endswith(".class")}
    assert set(kept) == {"headrace/ConditionalLogStore.class"}
    from shutil import which

    if not (which("javac") and which("jar")):
        pytest.skip("no JDK to compile it with")
    made = tmp_path / "made.jar"
    build = [ROOT / "infra" / "logstore" / "build", made]
    subprocess.run(build, check=True, env={**os.environ, "PYTHON": sys.executable})
    with zipfile.ZipFile(made) as jar:
        assert {name: jar.read(name) for name in kept} == kept
