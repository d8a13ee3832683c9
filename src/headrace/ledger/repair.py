"""Plan a repair: what runs again, what is reused, what is skipped, and why. Pure.

The graph is what the run's attempts say of themselves, or what the flow's present code says; an
item of a for-each is known by its key, so that 3 failed items of 100 are 3 items to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Literal, Protocol

from headrace.exceptions import TaskNotFoundError
from headrace.ledger.conditions import judge, why
from headrace.ledger.records import GOOD, RepairRequest, RunIf, State, node_name, split_name

Action = Literal["run", "reuse", "keep", "exclude", "upstream_failed"]


class Tried(Protocol):
    """What the planner reads of an attempt; `AttemptRecord` has it all."""

    @property
    def id(self) -> int: ...  # noqa: D102
    @property
    def task(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def state(self) -> State: ...  # noqa: D102
    @property
    def run_if(self) -> RunIf: ...  # noqa: D102
    @property
    def depends_on(self) -> Sequence[str]: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class Node:
    """One task, or one item of a for-each.

    Attributes:
        name: `task` or `task/key`.
        depends_on: Names of what it waits for; `task` stands for the task and all its items.
        run_if: Its condition.
    """

    name: str
    depends_on: tuple[str, ...] = ()
    run_if: RunIf = "all_success"


Graph = Mapping[str, Node]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a repair does with one task or item.

    Attributes:
        name: `task` or `task/key`.
        action: `run`: it runs again. `reuse`: its result stands. `keep`: it stays unsuccessful,
            because the repair was not asked for it. `exclude`, `upstream_failed`: it will not run,
            provided that whatever runs again succeeds.
        attempt_id: The attempt that is reused or kept.
        why: The reason, for `--dry-run`.
        again: Whether it is decided anew when its turn comes, on how its dependencies really ended;
            if not, the attempt's outcome stands.
    """

    name: str
    action: Action
    why: str
    attempt_id: int | None = None
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """A decision for every task and item, dependencies first.

    Attributes:
        decisions: What happens to each.
        spreads: Whether what depends on a task that runs again runs again too.
    """

    decisions: tuple[Decision, ...]
    spreads: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to repair."""
        return not any(decision.again for decision in self.decisions)

    def names(self, action: Action) -> list[str]:
        """Names of the tasks and items with this action."""
        return [decision.name for decision in self.decisions if decision.action == action]

    def of(self, name: str) -> Decision | None:
        """The decision about one task or item, or None when the plan doesn't know it: it is new."""
        return self._by_name.get(name)

    def runs_again(self, name: str, moved: Iterable[str] = ()) -> bool:
        """Whether a task or item is decided anew when the flow comes to it.

        Args:
            name: `task` or `task/key`.
            moved: Those of its dependencies that were decided anew in this repair. The flow may
                have changed since: what the plan doesn't know is new and runs.
        """
        decision = self.of(name)
        return decision is None or decision.again or (self.spreads and any(moved))

    @cached_property
    def _by_name(self) -> dict[str, Decision]:
        return {decision.name: decision for decision in self.decisions}


def graph_of(attempts: Iterable[Tried]) -> dict[str, Node]:
    """The graph that a run went through, from the latest attempt of every task and item."""
    return {
        name: Node(name=name, depends_on=tuple(attempt.depends_on), run_if=attempt.run_if)
        for name, attempt in latest_of(attempts).items()
    }


def latest_of(attempts: Iterable[Tried]) -> dict[str, Tried]:
    """The attempt that counts of every task and item: the one with the highest number."""
    latest: dict[str, Tried] = {}
    for attempt in attempts:
        name = node_name(attempt.task, attempt.key)
        if name not in latest or attempt.number > latest[name].number:
            latest[name] = attempt
    return latest


def plan_repair(
    graph: Graph,
    attempts: Iterable[Tried],
    request: RepairRequest,
    *,
    owed: Collection[str] = (),
) -> RepairPlan:
    """Decide what a repair runs again.

    Without named tasks: every task whose latest attempt is unsuccessful or missing, or that is
    owed, and all that depends on one. With named tasks: those, and with `with_dependents` all that
    depends on them. All else keeps its outcome, and a reused task its table versions.

    Args:
        graph: The tasks and items, by name.
        attempts: The run's attempts; the latest of each task and item counts.
        request: What was asked for.
        owed: Tasks that an earlier repair was to run again and did not come to: their latest
            attempt may be a success, but of older inputs.

    Returns:
        One decision for each node of the graph, dependencies first.

    Raises:
        TaskNotFoundError: The request names a task that the graph doesn't have.
        ValueError: The graph has a cycle.

    Example:
        >>> from types import SimpleNamespace
        >>> tried = [
        ...     SimpleNamespace(id=1, task="load", key="", number=1, state="success"),
        ...     SimpleNamespace(id=2, task="train", key="", number=1, state="failed"),
        ... ]
        >>> graph = {
        ...     "load": Node(name="load"),
        ...     "train": Node(name="train", depends_on=("load",)),
        ...     "score": Node(name="score", depends_on=("train",)),
        ... }
        >>> plan = plan_repair(graph, tried, RepairRequest())
        >>> [(decision.name, decision.action) for decision in plan.decisions]
        [('load', 'reuse'), ('train', 'run'), ('score', 'run')]
    """
    edges = _edges(graph)
    latest = latest_of(attempts)
    asked = _asked(graph, request)
    spreads = not asked or request.with_dependents
    planned: dict[str, tuple[Decision, State]] = {}
    for name in _order(edges):
        cause = _cause(name, latest.get(name), asked, owed)
        if cause is None and spreads:
            moved = [dep for dep in edges[name] if planned[dep][0].again]
            cause = f"depends on {_some(moved)}" if moved else None
        if cause is None:
            planned[name] = _stays(name, latest.get(name))
        else:
            states = {dep: planned[dep][1] for dep in edges[name]}
            planned[name] = _again(graph[name], states, cause)
    return RepairPlan(decisions=tuple(done for done, _ in planned.values()), spreads=spreads)


def _cause(
    name: str, attempt: Tried | None, asked: frozenset[str], owed: Collection[str]
) -> str | None:
    """Why a task runs again for its own sake, or None."""
    if asked:
        return "asked for" if name in asked else None
    if attempt is None:
        return "never ran"
    if attempt.state not in GOOD:
        return f"attempt {attempt.number} ended as {attempt.state}"
    return "an earlier repair did not come to it" if name in owed else None


def _stays(name: str, attempt: Tried | None) -> tuple[Decision, State]:
    """A task that is left alone, with the outcome it had."""
    if attempt is None:
        decision = Decision(name=name, action="keep", why="never ran, and was not asked for")
        return decision, "upstream_failed"
    action: Action = "keep"
    reason = f"stays {attempt.state}: it was not asked for"
    if attempt.state == "success":
        action, reason = "reuse", f"attempt {attempt.number} succeeded"
    elif attempt.state == "excluded":
        action, reason = "exclude", f"attempt {attempt.number} was excluded"
    return Decision(name=name, action=action, attempt_id=attempt.id, why=reason), attempt.state


def _again(node: Node, states: Mapping[str, State], cause: str) -> tuple[Decision, State]:
    """A task that is decided anew, on the assumption that what runs again succeeds."""
    verdict = judge(node.run_if, states.values())
    if verdict == "run":
        return Decision(name=node.name, action="run", why=cause, again=True), "success"
    failed = [name for name, state in states.items() if state not in GOOD]
    reason = why(node.run_if, failed, verdict=verdict)
    action: Action = "exclude" if verdict == "excluded" else "upstream_failed"
    return Decision(name=node.name, action=action, why=reason, again=True), verdict


def _asked(graph: Graph, request: RepairRequest) -> frozenset[str]:
    """The nodes that the request names; a task's name stands for all its items."""
    members = _members(graph)
    found: set[str] = set()
    for name in request.tasks:
        nodes = _resolve(name, graph, members)
        if not nodes:
            raise TaskNotFoundError(
                task=name,
                where="The run",
                defined=sorted({split_name(known)[0] for known in graph}),
            )
        found.update(nodes)
    return frozenset(found)


def _members(graph: Graph) -> dict[str, list[str]]:
    """The nodes of each task: itself, or its items."""
    members: dict[str, list[str]] = defaultdict(list)
    for name in graph:
        members[split_name(name)[0]].append(name)
    return members


def _resolve(name: str, graph: Graph, members: Mapping[str, list[str]]) -> list[str]:
    if "/" in name:
        return [name] if name in graph else []
    return members.get(name, [])


def _edges(graph: Graph) -> dict[str, list[str]]:
    """Each node's dependencies as nodes; a name that the graph lacks is gone from the code."""
    members = _members(graph)
    return {
        name: list(
            dict.fromkeys(
                found for dep in node.depends_on for found in _resolve(dep, graph, members)
            )
        )
        for name, node in graph.items()
    }


def _order(edges: Mapping[str, Sequence[str]]) -> list[str]:
    try:
        return list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        raise ValueError(f"the tasks wait for each other: {' -> '.join(error.args[1])}") from error


def _some(names: Sequence[str], most: int = 3) -> str:
    """A few names, and how many more."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
