"""Errors about one attempt of a task: what goes in, what comes out, how its process ends."""

from __future__ import annotations

from headrace.exceptions.base import EngineError, HeadraceError, UserError, lines


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
