"""Errors of `headrace.ml`."""

from __future__ import annotations

from headrace.exceptions.base import DataError, EngineError, UserError, lines


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


class GroupsTooLargeError(UserError):
    """Groups of a table don't fit into the memory of a worker.

    Attributes:
        table: The table, with its version.
        groups: Each with its rows and the MiB that it needs, largest first.
        limit_mib: What a worker has.
    """

    table: str
    groups: list[str]
    limit_mib: int

    def describe(self) -> str:
        shown = self.groups[:5]
        more = f", and {len(self.groups) - 5} more" if len(self.groups) > len(shown) else ""
        return lines(
            f"{len(self.groups)} groups of {self.table} don't fit into a worker: "
            f"{', '.join(shown)}{more}.",
            f"A worker has {self.limit_mib:,} MiB for rows, their copy as pandas, and what is made "
            "of them.",
            'on_large="sample" (or "iterate", "alone", "leave"), fewer columns, or more memory in '
            "the profile",
        )


class ModelSignatureError(UserError):
    """A table does not have what a model's signature asks for.

    Attributes:
        model: The model.
        table: The table, with its version.
        problems: What is wrong, a sentence for each column.
    """

    model: str
    table: str
    problems: list[str]

    def describe(self) -> str:
        return lines(
            f"{self.table} does not fit the signature of {self.model}: {'; '.join(self.problems)}.",
            "No row was scored.",
            "score a table with the columns that the model was trained on, or another version of "
            "the model",
        )


class BadRowsError(DataError):
    """More rows than were allowed can't be scored.

    Attributes:
        error: The model's own error for the first of them.
        row: That row, as JSON.
        bad: How many rows there are at least.
        allowed: How many are allowed.
        table: The table with its version.
    """

    error: str
    row: str
    bad: int
    allowed: int
    table: str

    def describe(self) -> str:
        return lines(
            f"{self.error}, for the row {self.row[:300]}",
            f"{self.bad:,} rows or more of {self.table} can't be scored, {self.allowed:,} are "
            "allowed; nothing was written.",
            f"mend the rows or the model, or max_bad_rows={self.bad * 2}",
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
