"""Errors about pipelines as they are written and named, and about the servers beside them."""

from __future__ import annotations

from headrace.exceptions.base import EngineError, UserError, closest, lines


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
