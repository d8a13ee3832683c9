"""Errors about reading a table."""

from __future__ import annotations

from headrace.exceptions.base import DataError, EngineError, UserError, closest, lines


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


class UnreadableFileError(DataError):
    """A data file is no Parquet that can be read: damaged, cut, encrypted or something else."""

    table: str
    version: int
    file: str
    found: str

    def describe(self) -> str:
        return lines(
            f"{self.file} of {self.table} version {self.version} can't be read as Parquet.",
            f"Found: {self.found}",
            "restore the file, or read a version without it",
        )


class RowCountWarning(UserWarning):
    """A data file has another number of rows than the log says, and the size that it says.

    Its writer miscounted. All rows of the file are read; counts that come from the log are off.
    """


class RowCountError(DataError):
    """A data file has another size and another number of rows than the log says."""

    table: str
    version: int
    file: str
    expected: int
    found: int

    def describe(self) -> str:
        return lines(
            f"{self.file} of {self.table} version {self.version} has another number of rows.",
            f"The log says {self.expected}, the file holds {self.found}, and its size differs too.",
            "the file was replaced after its commit; restore it, or read a version without it",
        )
