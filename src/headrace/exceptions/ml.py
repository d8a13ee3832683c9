"""Errors of `headrace.ml`."""

from __future__ import annotations

from headrace.exceptions.base import EngineError, UserError, lines


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
