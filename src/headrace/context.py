"""What a running task knows: its run, its parameters, its tables, what it read and wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.exceptions import UserError, lines
from headrace.profiles.storage import Storage
from headrace.tables import TableRef


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """One table that the task read or wrote.

    Attributes:
        ref: The version.
        mode: `read`, or the write mode (`append`, `overwrite`, ...).
    """

    ref: TableRef
    mode: str


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A file or a text that people should see with the run.

    Attributes:
        title: Heading.
        path: A file that goes to the task's MLflow run; None for a text alone.
        markdown: Text that is shown on the run's page in Prefect.
    """

    title: str
    path: str | None = None
    markdown: str = ""


@dataclass(kw_only=True)
class TaskContext:
    """Given to every task that has a parameter named `context`.

    Attributes:
        run_id: The headrace run, or `local` outside a run.
        task: Name of the task.
        attempt: 1 for the first attempt, then 2, 3, ...
        key: Key of the for-each item, or an empty string.
        generation: Tells attempts that do the same work from those that do other work: the same
            for a retry, another one when arguments or code have changed.
        cursors: Versions up to which the last successful run of the task read tables' changes.
        pipeline: Name of the pipeline.
        parameters: The run's parameters, as JSON values.
        lake: Address of the folder that short table names live in.
        storage: Credentials and endpoint of that storage.
        cores: CPU cores of the task's profile.
        workers: Workers of the task's profile.
        memory_mib: Memory of the task's profile in MiB, or None outside of a profile.
        mlflow_run_id: The task's MLflow run, or None when nothing is tracked.
        logger: A logger whose lines reach the Prefect run and the attempt's log file.
        reads: Tables read so far, in order, each version once.
        writes: Tables written so far, in order.
        models: Models that rows were made with so far, as `models:/NAME/VERSION`.
        attachments: Files and texts to show with the run.
    """

    run_id: str = "local"
    task: str = "local"
    attempt: int = 1
    key: str = ""
    generation: str = ""
    cursors: Mapping[str, int] = field(default_factory=dict)
    pipeline: str = "local"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    lake: str = ".headrace/lake"
    storage: Storage = field(default_factory=Storage)
    cores: int = 1
    workers: int = 1
    memory_mib: int | None = None
    mlflow_run_id: str | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("headrace.task"))
    reads: list[Lineage] = field(default_factory=list)
    writes: list[Lineage] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)

    def table_uri(self, name: str) -> str:
        """Where the table `name` lives.

        Args:
            name: A short name (`flights`, `staging/flights`), a path, or an `s3://` address.

        Returns:
            An absolute path or an address, without a trailing slash.
        """
        return resolve_table(name, lake=self.lake)

    def write_key(self) -> tuple[str, str]:
        """The key that makes this task's writes exactly-once.

        It is the same for every attempt that does the same work, so that a rerun after a crash
        between commit and report leaves one copy. An attempt with other arguments or other code
        has another key: its write is not a repetition.
        """
        item = f"{self.task}/{self.key}" if self.key else self.task
        return self.run_id, f"{item}@{self.generation}" if self.generation else item

    def record_read(self, ref: TableRef) -> None:
        """Note that the task read this version."""
        if all(seen.ref != ref for seen in self.reads):
            self.reads.append(Lineage(ref=ref, mode="read"))

    def record_model(self, uri: str) -> None:
        """Note that the task makes rows with this model; commits from here on name it."""
        if uri not in self.models:
            self.models.append(uri)

    def record_write(self, ref: TableRef, mode: str) -> None:
        """Note that the task made this version."""
        self.writes.append(Lineage(ref=ref, mode=mode))

    def attach(self, title: str, *, path: Path | str | None = None, markdown: str = "") -> None:
        """Show something with the run: a file in MLflow, a text in Prefect, or both.

        Args:
            title: Heading, such as `Delay report`.
            path: A file that stays where it is until the task is over.
            markdown: Text for the run's page in Prefect.
        """
        file = str(Path(path).absolute()) if path is not None else None
        self.attachments.append(Attachment(title=title, path=file, markdown=markdown))


_current: ContextVar[TaskContext | None] = ContextVar("headrace_task_context", default=None)


def current_context() -> TaskContext:
    """The context of the task that is running, or one for local use when none is."""
    return _current.get() or TaskContext()


def inside_task() -> bool:
    """Whether the caller runs as (a part of) a task."""
    return _current.get() is not None


@contextmanager
def use_context(context: TaskContext) -> Iterator[TaskContext]:
    """Make `context` the current one inside the block."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def resolve_table(name: str, *, lake: str) -> str:
    """Turn a short table name, a path or an address into an absolute address.

    Raises:
        UserError: The name is empty or climbs out of the lake with `..`.
    """
    text = name.strip()
    if not text:
        raise UserError(
            message=lines("A table name is empty.", fix='give a name such as "flights"')
        )
    if "://" in text:
        return (
            text.removeprefix("file://").rstrip("/")
            if text.startswith("file://")
            else text.rstrip("/")
        )
    path = Path(text)
    if path.is_absolute():
        return str(path)
    if ".." in path.parts:
        raise UserError(
            message=lines(
                f"Table name {name!r} climbs out of the lake.",
                f"The lake is {lake}.",
                "use a name below the lake, or an absolute path",
            )
        )
    if "://" in lake:
        return f"{lake.rstrip('/')}/{path.as_posix()}"
    return str(Path(lake).absolute() / path)
