"""Which pipelines are served: those of the project's `flows/`, or those that are named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.exceptions import FlowNotFoundError, TriggerDefinitionError, closest
from headrace.orchestration.find_flow import defined_pipelines, load_pipeline
from headrace.orchestration.triggers.watchers import Served

if TYPE_CHECKING:
    from headrace.orchestration.pipeline import Pipeline


def find_pipelines(names: Sequence[str], *, root: Path) -> dict[str, Pipeline[Any, Any]]:
    """Pipelines by name.

    Args:
        names: Modules (all their pipelines) or `module.function`; none means all in `flows/`.
        root: The project's root.

    Raises:
        FlowNotFoundError: A name fits nothing, or there are no pipelines.
        TriggerDefinitionError: Two of them have one name, or one waits for a pipeline that isn't.
    """
    known = defined_pipelines(root)
    wanted: list[str] = []
    for name in names:
        module = name.strip().removesuffix(".py").replace("/", ".").replace(":", ".")
        inside = [full for full in known if full.rpartition(".")[0] == module]
        wanted += inside or [name]
    if not names:
        wanted = known
    if not wanted:
        problem = "there are no pipelines in flows/"
        raise FlowNotFoundError(name="flows", problem=problem, defined=[])
    found: dict[str, Pipeline[Any, Any]] = {}
    for name in dict.fromkeys(wanted):
        pipeline = load_pipeline(name, root=root)
        other = found.setdefault(pipeline.name, pipeline)
        if other.entrypoint != pipeline.entrypoint:
            raise TriggerDefinitionError(
                trigger=f"Pipeline {pipeline.name}",
                problem=f"{other.entrypoint} and {pipeline.entrypoint} have the same name",
                found="The ledger and Prefect know a pipeline by its name.",
                fix='@pipeline(name="another")',
            )
    _check_followers(found, known)
    return found


def served(pipelines: dict[str, Pipeline[Any, Any]]) -> list[Served]:
    """What the loop needs of pipelines."""
    return [
        Served(name=name, entrypoint=pipeline.entrypoint, policy=pipeline.policy)
        for name, pipeline in pipelines.items()
    ]


def _check_followers(found: dict[str, Pipeline[Any, Any]], known: list[str]) -> None:
    """A pipeline that waits for one that nothing defines would wait for ever."""
    names = {*found, *(full.rpartition(".")[2] for full in known)}
    for pipeline in found.values():
        for trigger in pipeline.policy.triggers:
            other = getattr(trigger, "pipeline", None)
            if other is not None and other not in names:
                near = closest(other, names)
                raise TriggerDefinitionError(
                    trigger=f"Pipeline {pipeline.name}",
                    problem=f"it waits for the pipeline {other!r}, which there isn't",
                    found=f"Pipelines: {', '.join(sorted(names))}.",
                    fix=f'on_pipeline("{near or "build_features"}")',
                )
