"""Spark DataFrames and Delta tables: a pinned read, an exactly-once write, a layout to rely on.

Everything here goes through public DataFrame and SQL calls, so that a Spark Connect session works
as a classic one does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from headrace.context import current_context
from headrace.delta.log import TableFiles, commit_versions
from headrace.delta.pinning import pin
from headrace.delta.snapshot import load_snapshot
from headrace.delta.spark_layout import hash_split, quote, repartition_sorted
from headrace.delta.target import name_list, resolve_target
from headrace.delta.transaction import (
    TXN_VERSION,
    WriteKey,
    find_commit,
    lineage_json,
    resolve_key,
)
from headrace.exceptions import CommitUnclearError, ConcurrentWriteError, WriteRequestError
from headrace.tables import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["hash_split", "read_table", "repartition_sorted", "write_table"]

SparkMode = Literal["append", "overwrite", "overwrite_partitions", "merge"]
SchemaMode = Literal["merge", "overwrite"]

_ATTEMPTS = 6
# Delta's exception classes and error conditions for a commit that lost against another one.
_CODES = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_CONFLICTS = (
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
)


def read_table(table: TableRef | str | Path, *, spark: SparkSession | None = None) -> DataFrame:
    """Read one version of a Delta table as a Spark DataFrame.

    The version is fixed now: what other writers commit later is not seen, however often the
    DataFrame is evaluated. The read is noted in the task's context.

    Args:
        table: A reference, which is read at its version; or a name or path, read at its newest.
        spark: The session; the active one when left out.
    """
    context = current_context()
    ref = table if isinstance(table, TableRef) else pin(table)[1]
    frame = (
        (spark or _active_session())
        .read.format("delta")
        .option("versionAsOf", ref.version)
        .load(_hadoop(ref.uri))
    )
    context.record_read(ref)
    return frame


def write_table(
    df: DataFrame,
    table: TableRef | str | Path,
    *,
    mode: SparkMode = "overwrite",
    partition_by: Sequence[str] | str = (),
    replace_where: str | None = None,
    merge_on: Sequence[str] | str = (),
    schema_mode: SchemaMode | None = None,
    key: tuple[str, ...] | None = None,
) -> TableRef:
    """Write a Spark DataFrame to a Delta table, exactly once, and say which version that made.

    Inside a task the write carries the task's key as a Delta transaction: when the attempt is
    killed after the commit and run again, the second write is skipped and gets the first one's
    version. The commit's `userMetadata` names run, task, attempt, MLflow run and input versions.

    Args:
        df: A classic or a Spark Connect DataFrame.
        table: A name in the lake, a path, an `s3://` address, or a reference (its table is meant).
        mode: `append`; `overwrite` (the whole table, or the rows of `replace_where`);
            `overwrite_partitions` (only partitions that `df` has rows for); `merge` on `merge_on`.
        partition_by: Partition columns of a new table.
        replace_where: SQL predicate: only rows for which it holds are replaced.
        merge_on: Key columns of a merge. A row whose key exists updates it, another is inserted.
        schema_mode: `merge` adds new columns, `overwrite` takes the DataFrame's schema.
        key: Identity of the write; the task's when left out.

    Returns:
        The version that this write made.

    Raises:
        WriteRequestError: The arguments contradict each other.
        ConcurrentWriteError: Other writers won every time.
    """
    context = current_context()
    target = resolve_target(table, context)
    _check_arguments(target.label, mode, replace_where, merge_on, schema_mode)
    write_key = resolve_key(key, uri=target.uri, context=context)
    files = TableFiles(target.uri, context.storage)
    save = _Save(df, target.uri, write_key, lineage_json(context, write_key), schema_mode)
    version = find_commit(files, write_key) if write_key.parts else None
    if version is None:
        if mode == "merge" and files.names("_delta_log"):
            version = _until_committed(
                lambda: save.merge(name_list(merge_on)), files, write_key, mode
            )
        else:
            version = _until_committed(
                lambda: save.write(mode, name_list(partition_by), replace_where),
                files,
                write_key,
                mode,
            )
    ref = load_snapshot(target.uri, version=version, storage=context.storage).ref(target.name)
    context.record_write(ref, mode)
    return ref


@dataclass(frozen=True)
class _Save:
    """One write as calls on the DataFrame's own session."""

    df: DataFrame
    uri: str
    key: WriteKey
    metadata: str
    schema_mode: SchemaMode | None

    def write(self, mode: str, partition_by: Sequence[str], replace_where: str | None) -> None:
        writer = self.df.write.format("delta").option("userMetadata", self.metadata)
        writer = writer.mode("overwrite" if mode.startswith("overwrite") else "append")
        if self.key.app_id is not None:
            writer = writer.option("txnAppId", self.key.app_id).option("txnVersion", TXN_VERSION)
        if mode == "overwrite_partitions":
            writer = writer.option("partitionOverwriteMode", "dynamic")
        elif mode == "overwrite":
            # The session may have been set to dynamic; here the word means the whole table.
            writer = writer.option("partitionOverwriteMode", "static")
        if replace_where is not None:
            writer = writer.option("replaceWhere", replace_where)
        if self.schema_mode is not None:
            writer = writer.option(f"{self.schema_mode}Schema", "true")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.save(_hadoop(self.uri))

    def merge(self, merge_on: Sequence[str]) -> None:
        spark = self.df.sparkSession
        view = f"headrace_merge_{self.key.write_id}"
        self.df.createOrReplaceTempView(view)
        settings = {"spark.databricks.delta.commitInfo.userMetadata": self.metadata}
        if self.key.app_id is not None:
            settings["spark.databricks.delta.write.txnAppId"] = self.key.app_id
            settings["spark.databricks.delta.write.txnVersion"] = str(TXN_VERSION)
        try:
            with _settings(spark, settings):
                spark.sql(merge_sql(self.uri, view, merge_on, self.schema_mode)).collect()
        finally:
            spark.catalog.dropTempView(view)


def merge_sql(uri: str, view: str, merge_on: Sequence[str], schema_mode: str | None) -> str:
    """The MERGE statement that updates rows whose key exists and inserts the others."""
    evolution = "WITH SCHEMA EVOLUTION " if schema_mode == "merge" else ""
    condition = " AND ".join(f"target.{quote(c)} = source.{quote(c)}" for c in merge_on)
    return (
        f"MERGE {evolution}INTO delta.{quote(_hadoop(uri))} AS target USING {view} AS source "
        f"ON {condition} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _until_committed(
    action: Callable[[], None], files: TableFiles, key: WriteKey, mode: str
) -> int | None:
    """Run the write until it has committed; the version it made, or None when it changed nothing.

    Every mode may be repeated whole: Spark evaluates the DataFrame and its condition again on the
    newest version, so the result is as if this write had come second.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            action()
        except Exception as error:
            landed = _settle(files, key, error)
            if landed is not None:
                return landed
            if not _is_conflict(error):
                raise
            if attempt == _ATTEMPTS:
                version = max(commit_versions(files), default=0)
                raise ConcurrentWriteError(
                    table=files.uri,
                    mode=mode,
                    problem=f"{_ATTEMPTS} attempts, each met a newer commit",
                    read_version=version,
                    conflicting_version=version,
                ) from error
            time.sleep(random.uniform(0.1, 0.4) * 2**attempt)  # noqa: S311
        else:
            return find_commit(files, key)
    raise AssertionError


def _settle(files: TableFiles, key: WriteKey, error: Exception) -> int | None:
    """Whether the commit landed although its caller saw an error."""
    try:
        return find_commit(files, key)
    except OSError as unreadable:
        raise CommitUnclearError(
            table=files.uri, problem=str(unreadable), key=key.app_id or key.write_id
        ) from error


def _is_conflict(error: Exception) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    # A classic session gives a plain py4j error when `delta.exceptions` was never imported.
    return bool(names & set(_CONFLICTS)) or any(f"[{code}" in str(error) for code in _CODES)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Session settings for the length of a block, put back as they were."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def _check_arguments(
    uri: str,
    mode: str,
    replace_where: str | None,
    merge_on: Sequence[str],
    schema_mode: str | None,
) -> None:
    modes = get_args(SparkMode)
    problem, fix = "", ""
    if mode not in modes:
        problem, fix = f"mode={mode!r} does not exist", f"use one of {', '.join(modes)}"
    elif schema_mode not in (None, *get_args(SchemaMode)):
        problem, fix = f"schema_mode={schema_mode!r} does not exist", 'use "merge" or "overwrite"'
    elif (mode == "merge") != bool(merge_on):
        problem = 'mode="merge" and merge_on belong together'
        fix = 'mode="merge", merge_on=["id"]'
    elif replace_where is not None and mode != "overwrite":
        problem, fix = "replace_where goes with mode='overwrite' only", 'use mode="overwrite"'
    elif schema_mode == "overwrite" and (mode != "overwrite" or replace_where is not None):
        problem = "only an overwrite of the whole table can replace its schema"
        fix = 'use schema_mode="merge", or mode="overwrite" without replace_where'
    if problem:
        raise WriteRequestError(table=uri, problem=problem, found="", fix=fix)


def _active_session() -> SparkSession:
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        session = RemoteSession.getActiveSession()
    else:
        session = SparkSession.getActiveSession()
    if session is None:
        raise WriteRequestError(
            table="a table",
            problem="no Spark session is active",
            found="",
            fix="pass spark=..., or call it in a @spark_task",
        )
    return session


def _hadoop(uri: str) -> str:
    """The address as Spark's file systems know it."""
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri
