"""A Spark session with Delta, of a profile's size, that keeps to its scratch folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.engines.jars import jar_paths, spark_folder
from headrace.engines.java import find_java
from headrace.engines.log_store import log_store_conf, log_store_jars
from headrace.engines.private_file import write_private
from headrace.engines.s3_jars import spark_jars
from headrace.engines.spark_cluster import cluster_settings, prepare_cluster
from headrace.exceptions import EngineStartError
from headrace.profiles.models import SparkProfile
from headrace.profiles.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a session needs beside its heap: the JVM's own parts and this Python with Arrow.
_BESIDE_HEAP_MIB: Final = 448
_LEAST_HEAP_MIB: Final = 320
_FEW_CORES: Final = 2
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

# Warnings that say nothing about the user's job: no Hadoop binaries, long plans, local
# checkpoints that Delta makes on purpose, and the like.
_QUIET: Final = {
    "org.apache.hadoop.util.NativeCodeLoader": "error",
    "org.apache.hadoop.metrics2": "error",
    "org.apache.spark.rdd.MapPartitionsRDD": "error",
    "org.apache.spark.util.SparkStringUtils": "error",
    "org.apache.spark.util.Utils": "error",
    "org.apache.spark.SparkEnv": "error",
    "org.apache.parquet.hadoop": "error",
    "org.apache.spark.sql.execution.window.WindowExec": "error",
    "org.apache.spark.sql.delta.commands": "error",
}


@contextmanager
def open_spark(
    profile: SparkProfile,
    *,
    storage: Storage | None = None,
    app_name: str = "headrace",
    scratch: Path | None = None,
    address: str | None = None,
    secret_conf: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> Iterator[SparkSession]:
    """Open a Spark session with Delta, and stop it at the end.

    Args:
        profile: Its size and settings; `spark_conf` wins over headrace's own.
        storage: Credentials and endpoint of the lake.
        app_name: Name of the application.
        scratch: Folder for spilled data, warehouse and configuration; a temporary one when left
            out. It is removed at the end.
        secret_conf: Further settings that must not be seen on a command line.
        address: `sc://HOST:PORT` of a running Spark Connect server to use instead of a local JVM,
            or the address of a cluster whose driver runs here.
        root: The project's root, whose code a cluster's workers are given.

    Raises:
        JavaNotFoundError: There is no Java 17 or newer.
        JarsUnavailableError: Delta's JARs are missing and can't be fetched.
        EngineStartError: Spark did not start.
        VersionMismatchError: The cluster has another Python or other packages.
    """
    if address and address.startswith("sc://"):
        with _open_connect(address) as session:
            if profile.where == "connect":
                prepare_cluster(session, root)
            yield session
        return
    with _scratch_folder(scratch) as folder:
        storage_conf = (storage or Storage()).spark_conf()
        prepare_environment(folder, {**storage_conf, **(secret_conf or {})})
        settings = spark_settings(profile, app_name=app_name, scratch=folder, storage=storage)
        if address:
            jars = session_jars(profile, storage or Storage())
            settings |= cluster_settings(profile, address, jars)
            os.environ["SPARK_LOCAL_IP"] = settings["spark.driver.bindAddress"]
        session = _start({**settings, **profile.spark_conf})
        try:
            if address:
                prepare_cluster(session, root)
            yield session
        finally:
            session.stop()
            _end_gateway()


def prepare_environment(scratch: Path, secret_conf: Mapping[str, str]) -> None:
    """Set what Spark's launcher reads from the environment of this process.

    Settings with secrets go into a file that only the owner can read: everything else that
    Spark is given before its start stands on a command line, where `ps` shows it.
    """
    conf = scratch / "conf"
    conf.mkdir(mode=0o700, parents=True, exist_ok=True)
    (conf / "log4j2.properties").write_text(log4j_settings())
    text = "".join(f"{name} {_escape(value)}\n" for name, value in secret_conf.items())
    write_private(conf / "spark-defaults.conf", text)
    os.environ.update(
        JAVA_HOME=str(find_java().home),
        SPARK_HOME=str(spark_folder()),
        SPARK_CONF_DIR=str(conf),
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    # Left over from a notebook or another Spark, these would change what is started here.
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "MASTER", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)


def _escape(value: str) -> str:
    """A value in the syntax of Java's properties files."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(
        chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}"
        for code in codes
    )


def log4j_settings() -> str:
    """Settings for Spark's log: warnings and errors on stderr, without the usual noise."""
    quiet = [
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = {level}\n"
        for number, (name, level) in enumerate(_QUIET.items())
    ]
    return _LOG4J + "".join(quiet)


def spark_settings(
    profile: SparkProfile, *, app_name: str, scratch: Path, storage: Storage | None = None
) -> dict[str, str]:
    """The settings of a local session: headrace's, then the profile's."""
    storage = storage or Storage()
    jars = os.pathsep.join(str(path) for path in session_jars(profile, storage))
    return {
        "spark.app.name": app_name,
        "spark.master": f"local[{profile.cores}]",
        "spark.driver.memory": f"{heap_mib(profile.memory_mib)}m",
        # On the class path and not in `spark.jars`: nothing is copied at each start.
        "spark.driver.extraClassPath": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(2, 2 * profile.cores)),
        "spark.default.parallelism": str(max(2, profile.cores)),
        # Spark 4.2.0: with this on, a plain Python UDF on a column of a Parquet file never ends.
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        # Delta spreads the reading of its log over 50 tasks, which is for clusters.
        "spark.databricks.delta.snapshotPartitions": str(max(1, profile.cores)),
        **log_store_conf(storage),
        **profile.spark_conf,
        _JAVA_OPTIONS: " ".join(
            [*_java_options(profile.cores, scratch), *_wanted_options(profile)]
        ),
    }


def _wanted_options(profile: SparkProfile) -> list[str]:
    """The profile's own options of the JVM, which come after ours: the last of two counts."""
    wanted = profile.spark_conf.get(_JAVA_OPTIONS)
    return [wanted] if wanted else []


def session_jars(profile: SparkProfile, storage: Storage) -> list[Path]:
    """What a session needs beside Spark's own JARs."""
    wanted = spark_jars(storage, profile.spark_conf)
    return [*jar_paths(wanted), *log_store_jars(storage)]


def heap_mib(memory_mib: int) -> int:
    """The JVM's share of a profile's memory: three quarters, less where that leaves too little."""
    return max(_LEAST_HEAP_MIB, min(memory_mib * 3 // 4, memory_mib - _BESIDE_HEAP_MIB))


def _java_options(cores: int, scratch: Path) -> list[str]:
    options = ["-Xss4m", "-Duser.timezone=UTC", "-XX:-UsePerfData"]
    if cores <= _FEW_CORES:
        options.append("-XX:+UseSerialGC")  # smaller, and no slower without cores to spare
    return [*options, f'"-Dderby.system.home={scratch}"', f'"-Djava.io.tmpdir={scratch / "tmp"}"']


def _start(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise EngineStartError(engine="Spark", reason=str(error), tail="") from error


def _end_gateway() -> None:
    """End the JVM, so that a later session in this process starts with its own settings."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001  pyspark has no public way
    if gateway is None:
        return
    gateway.shutdown()
    process = gateway.proc
    if process is not None:
        process.stdin.close()
        process.wait(timeout=30)
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001


@contextmanager
def _open_connect(address: str) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(address).create()
    try:
        yield session
    finally:
        # `stop` would end the server's session manager for the tasks that share it.
        session.client.close()


@contextmanager
def _scratch_folder(scratch: Path | None) -> Iterator[Path]:
    folder = scratch or Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
