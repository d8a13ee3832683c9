"""Errors about what starts a pipeline."""

from __future__ import annotations

from headrace.exceptions.base import UserError, closest, lines


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
