from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.exceptions import TaskNotFoundError
from headrace.ledger.queries import Attempted, _owed
from headrace.ledger.records import RUN_IFS, STATES, RepairRequest, split_name
from headrace.ledger.repair import Node, graph_of, latest_of, plan_repair

GOOD = {"success", "excluded"}


def nodes(**depends_on):
    """`nodes(a=[], b=["a"])`; a double underscore in a name stands for the slash before a key."""
    names = {name: name.replace("__", "/") for name in depends_on}
    return {names[n]: Node(name=names[n], depends_on=tuple(d)) for n, d in depends_on.items()}


def tried(**states):
    return [
        Attempted(i, *split_name(name.replace("__", "/")), 1, state, "all_success", [], 0, None)
        for i, (name, state) in enumerate(states.items(), 1)
    ]


def actions(plan):
    return {decision.name: decision.action for decision in plan.decisions}


def test_repair_runs_only_what_failed_and_what_waits_for_it():
    graph = nodes(a=[], b=[], c=["a", "b"], d=["a"])
    plan = plan_repair(
        graph, tried(a="success", d="success", b="failed", c="upstream_failed"), RepairRequest()
    )
    assert actions(plan) == {"a": "reuse", "b": "run", "c": "run", "d": "reuse"}
    assert plan.of("a").attempt_id == 1
    assert plan.of("b").why == "attempt 1 ended as failed"


def test_a_task_that_never_came_up_runs():
    plan = plan_repair(nodes(a=[], b=["a"], c=["b"]), tried(a="success"), RepairRequest())
    assert actions(plan) == {"a": "reuse", "b": "run", "c": "run"}
    assert plan.of("c").why == "never ran"


def test_a_task_that_is_green_after_a_retry_is_not_repaired():
    history = [
        Attempted(1, "a", "", 1, "failed", "all_success", [], 0, None),
        Attempted(2, "a", "", 2, "success", "all_success", [], 0, None),
    ]
    plan = plan_repair(nodes(a=[]), history, RepairRequest())
    assert plan.is_empty
    assert plan.of("a").attempt_id == 2
    assert actions(plan_repair(nodes(a=[]), history[::-1], RepairRequest())) == {"a": "reuse"}


def test_three_failed_items_of_a_hundred_are_three_items_to_run():
    failed = {"score/k3", "score/k57", "score/k99"}
    items = {f"score/k{i}": "success" for i in range(100)} | dict.fromkeys(failed, "failed")
    graph = nodes(load=[], **{name: ["load"] for name in items}, report=["score"])
    history = tried(load="success", **items, report="upstream_failed")
    plan = plan_repair(graph, history, RepairRequest())
    assert set(plan.names("run")) == failed | {"report"}
    assert len(plan.names("reuse")) == 98
    assert plan.of("report").why == "attempt 1 ended as upstream_failed"


def test_a_named_task_runs_alone_and_with_dependents_on_request():
    graph = nodes(a=[], b=["a"], c=["b"])
    green = tried(a="success", b="success", c="success")
    alone = plan_repair(graph, green, RepairRequest(tasks=("b",)))
    assert actions(alone) == {"a": "reuse", "b": "run", "c": "reuse"}
    assert not alone.runs_again("c", moved=["b"])
    wide = plan_repair(graph, green, RepairRequest(tasks=("b",), with_dependents=True))
    assert actions(wide) == {"a": "reuse", "b": "run", "c": "run"}
    assert wide.of("c").why == "depends on b"


def test_what_was_not_asked_for_stays_as_it_is_and_is_counted_as_failed():
    graph = nodes(a=[], b=["a"], c=["b"])
    plan = plan_repair(
        graph,
        tried(a="failed", b="upstream_failed", c="upstream_failed"),
        RepairRequest(tasks=("c",)),
    )
    assert actions(plan) == {"a": "keep", "b": "keep", "c": "upstream_failed"}
    assert plan.of("c").again
    assert plan_repair(nodes(a=[], b=["a"]), [], RepairRequest(tasks=("b",))).names("keep") == ["a"]


def test_a_named_for_each_means_all_its_items_and_a_key_means_one():
    graph = nodes(s__a=[], s__b=[], t=["s/a"], u=["s"])
    green = tried(s__a="success", s__b="success", t="success", u="success")
    assert plan_repair(graph, green, RepairRequest(tasks=("s",))).names("run") == ["s/a", "s/b"]
    one = RepairRequest(tasks=("s/b",), with_dependents=True)
    assert plan_repair(graph, green, one).names("run") == ["s/b", "u"]


def test_a_clean_up_task_is_excluded_when_the_repair_succeeds():
    graph = {
        "a": Node(name="a"),
        "clean": Node(name="clean", depends_on=("a",), run_if="at_least_one_failed"),
        "after": Node(name="after", depends_on=("clean",)),
    }
    plan = plan_repair(graph, tried(a="failed", clean="success", after="success"), RepairRequest())
    assert actions(plan) == {"a": "run", "clean": "exclude", "after": "exclude"}
    assert plan.runs_again("clean")


def test_an_unknown_task_is_told_with_those_that_there_are():
    with pytest.raises(TaskNotFoundError, match="train") as caught:
        plan_repair(nodes(train=[], s__a=[]), [], RepairRequest(tasks=("trian",)))
    assert caught.value.defined == ["s", "train"]
    with pytest.raises(TaskNotFoundError):
        plan_repair(nodes(s__a=[]), [], RepairRequest(tasks=("s/b",)))


def test_a_dependency_that_is_gone_from_the_code_holds_nothing_up():
    assert actions(plan_repair(nodes(b=["gone"]), tried(b="success"), RepairRequest())) == {
        "b": "reuse"
    }


def test_a_cycle_is_named():
    with pytest.raises(ValueError, match="wait for each other"):
        plan_repair(nodes(a=["b"], b=["a"]), [], RepairRequest())


def test_what_the_plan_does_not_know_is_new_and_runs():
    plan = plan_repair(nodes(a=[], b=["a"]), tried(a="success", b="success"), RepairRequest())
    assert plan.runs_again("new")
    assert not plan.runs_again("b")
    assert plan.runs_again("b", moved=["new"])


def test_a_plan_of_twenty_thousand_items_with_a_gather_is_made():
    graph = {"load": Node(name="load")}
    graph |= {f"s/{i}": Node(name=f"s/{i}", depends_on=("load",)) for i in range(20_000)}
    graph["end"] = Node(name="end", depends_on=("s",))
    history = [
        Attempted(i, *split_name(n), 1, "success", "all_success", [], 0, None)
        for i, n in enumerate(graph)
        if n != "s/19999"
    ]
    assert plan_repair(graph, history, RepairRequest()).names("run") == ["s/19999", "end"]


# --- against an independent reading of the rules -------------------------------------------------

TASKS = "abcdef"


@dataclass(frozen=True)
class Case:
    graph: dict
    attempts: list
    request: RepairRequest
    owed: frozenset


@st.composite
def graphs(draw):
    """A random graph: tasks and for-eaches in some order, each waiting for some that come before."""
    graph, before = {}, []
    for task in draw(st.permutations(TASKS))[: draw(st.integers(1, len(TASKS)))]:
        keys = draw(st.sampled_from([[""], [""], ["k"], ["k", "l/m"], ["x", "y", "z"]]))
        names = [f"{task}/{key}" if key else task for key in keys]
        run_if = draw(st.sampled_from(RUN_IFS))
        targets = [*before, *{name.split("/")[0] for name in before}, "gone", "gone/k"]
        for name in names:
            deps = draw(st.lists(st.sampled_from(sorted(targets)), max_size=3, unique=True))
            graph[name] = Node(name=name, depends_on=tuple(deps), run_if=run_if)
        before += names
    shuffled = draw(st.permutations(list(graph)))
    return {name: graph[name] for name in shuffled}


@st.composite
def cases(draw):
    graph = draw(graphs())
    attempts, count = [], 0
    for name in graph:
        for number in range(1, draw(st.integers(0, 3)) + 1):
            count += 1
            state = draw(st.sampled_from(["success", "success", *STATES]))
            task, key = split_name(name)
            attempts.append(Attempted(count, task, key, number, state, "all_success", [], 0, None))
    names = sorted({*graph, *(name.split("/")[0] for name in graph)})
    request = RepairRequest(
        tasks=tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True))),
        with_dependents=draw(st.booleans()),
    )
    owed = draw(st.frozensets(st.sampled_from(sorted(graph)), max_size=2))
    return Case(graph, draw(st.permutations(attempts)), request, owed)


def stands_for(reference, name):
    return reference == name or ("/" not in reference and name.startswith(reference + "/"))


def brute_force(case):
    """The rules word by word, over and over until nothing changes; no order, no shortcuts."""
    graph, last = case.graph, {}
    for attempt in case.attempts:
        name = f"{attempt.task}/{attempt.key}" if attempt.key else attempt.task
        if name not in last or last[name].number < attempt.number:
            last[name] = attempt
    deps = {n: {m for m in graph for d in graph[n].depends_on if stands_for(d, m)} for n in graph}
    if case.request.tasks:
        again = {n for n in graph if any(stands_for(t, n) for t in case.request.tasks)}
    else:
        again = {n for n in graph if n not in last or last[n].state not in GOOD} | case.owed
    if not case.request.tasks or case.request.with_dependents:
        while True:
            more = {n for n in graph if deps[n] & again} - again
            if not more:
                break
            again |= more
    outcome = {
        n: last[n].state if n in last else "upstream_failed" for n in graph if n not in again
    }
    while len(outcome) < len(graph):
        for n in again - set(outcome):
            if deps[n] <= set(outcome):
                outcome[n] = verdict(graph[n].run_if, [outcome[m] for m in deps[n]])
    return again, outcome


def verdict(run_if, states):
    bad = [s for s in states if s not in GOOD]
    met = {
        "all_success": not bad,
        "none_failed": not bad,
        "at_least_one_success": len(bad) < len(states),
        "all_done": True,
        "at_least_one_failed": bool(bad),
        "all_failed": len(bad) == len(states),
    }[run_if]
    if states and all(s == "excluded" for s in states):
        return "excluded"
    if met or not states:
        return "success"
    return "excluded" if run_if in ("at_least_one_failed", "all_failed") else "upstream_failed"


@settings(max_examples=2000, deadline=None)
@given(cases())
def test_the_plan_equals_a_brute_force_closure(case):
    plan = plan_repair(case.graph, case.attempts, case.request, owed=case.owed)
    again, outcome = brute_force(case)
    assert [d.name for d in plan.decisions if d.again] == [
        d.name for d in plan.decisions if d.name in again
    ]
    assert set(actions(plan)) == set(case.graph)
    words = {"success": "run", "excluded": "exclude", "upstream_failed": "upstream_failed"}
    last = latest_of(case.attempts)
    for decision in plan.decisions:
        name = decision.name
        assert decision.why
        if name in again:
            assert decision.action == words[outcome[name]]
            assert decision.attempt_id is None
            continue
        kept = last.get(name)
        assert decision.attempt_id == (kept.id if kept else None)
        state = kept.state if kept else None
        assert decision.action == {"success": "reuse", "excluded": "exclude"}.get(state, "keep")
    assert plan.is_empty == (not again)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_plan_is_the_same_whatever_the_order_of_the_rows(case):
    one = plan_repair(case.graph, case.attempts, case.request, owed=case.owed)
    turned = dict(reversed(case.graph.items()))
    two = plan_repair(turned, case.attempts[::-1], case.request, owed=case.owed)
    assert {d.name: (d.action, d.again) for d in one.decisions} == {
        d.name: (d.action, d.again) for d in two.decisions
    }


@dataclass
class Planned:
    seq: int
    planned: list


@settings(max_examples=1000, deadline=None)
@given(graphs(), st.data())
def test_after_any_crashes_a_last_repair_leaves_nothing_unsuccessful_and_nothing_stale(graph, data):
    graph = {name: Node(name=name, depends_on=node.depends_on) for name, node in graph.items()}
    order = [d.name for d in plan_repair(graph, [], RepairRequest()).decisions]
    attempts, repairs = [], []

    def execute(request, outcomes, stop):
        plan = plan_repair(graph, attempts, request, owed=_owed(repairs, attempts))
        seq = len(repairs)
        repairs.append(Planned(seq, [d.name for d in plan.decisions if d.again] if seq else []))
        states, moved = {n: a.state for n, a in latest_of(attempts).items()}, set()
        for name in order[:stop]:
            deps = [m for m in order for d in graph[name].depends_on if stands_for(d, m)]
            if not plan.runs_again(name, moved & set(deps)):
                continue
            moved.add(name)
            state = verdict("all_success", [states.get(m, "upstream_failed") for m in deps])
            state = outcomes(name) if state == "success" else state
            states[name] = state
            task, key = split_name(name)
            number = 1 + sum(a.task == task and a.key == key for a in attempts)
            attempts.append(
                Attempted(
                    len(attempts) + 1,
                    task,
                    key,
                    number,
                    state,
                    "all_success",
                    list(graph[name].depends_on),
                    seq,
                    None,
                )
            )

    for _ in range(data.draw(st.integers(1, 4))):
        tasks = (
            data.draw(st.lists(st.sampled_from(order), max_size=2, unique=True)) if repairs else []
        )
        execute(
            RepairRequest(tasks=tuple(tasks), with_dependents=True),
            lambda name: data.draw(st.sampled_from(["success", "success", "failed", "crashed"])),
            data.draw(st.integers(0, len(order))),
        )
    execute(RepairRequest(), lambda name: "success", len(order))
    last = latest_of(attempts)
    assert {a.state for a in last.values()} == {"success"}
    assert set(last) == set(graph)
    for name in order:
        for dep in (m for m in order for d in graph[name].depends_on if stands_for(d, m)):
            assert last[dep].id < last[name].id, f"{name} is older than {dep}"
    assert plan_repair(graph, attempts, RepairRequest(), owed=_owed(repairs, attempts)).is_empty
    assert set(graph_of(attempts)) == set(graph)
