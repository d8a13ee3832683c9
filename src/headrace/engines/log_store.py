"""The Delta LogStore that makes Spark's commits on S3 safe beside other writers.

Its source is `infra/logstore`, its JAR part of this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.profiles.storage import Storage

LOG_STORE_JAR: Final = Path(__file__).with_name("logstore.jar")
LOG_STORE_CLASS: Final = "headrace.ConditionalLogStore"


def log_store_jars(storage: Storage) -> list[Path]:
    """The JAR that a session on this storage needs for its commits."""
    return [LOG_STORE_JAR] if storage.kind == "s3" else []


def log_store_conf(storage: Storage) -> dict[str, str]:
    """Settings that let commits on S3 go through a conditional put; empty for other storage."""
    if storage.kind != "s3":
        return {}
    return {f"spark.delta.logStore.{scheme}.impl": LOG_STORE_CLASS for scheme in ("s3", "s3a")}
