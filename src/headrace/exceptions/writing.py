"""Errors about writing a table."""

from __future__ import annotations

from headrace.exceptions.base import DataError, EngineError, UserError, lines


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
