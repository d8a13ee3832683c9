"""Pipelines and tasks behave as a Prefect user expects, and leave a true record."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest

from headrace.exceptions import (
    MemoryLimitError,
    ParameterError,
    ResultError,
    RunFailedError,
    TaskDefinitionError,
    TaskFailedError,
)
from headrace.orchestration.tasks import EngineTask, python_task

pytestmark = pytest.mark.prefect


def test_a_pipeline_runs_its_tasks_and_the_ledger_knows(flows, ledger, ran):
    assert flows.add_up(count=4) == 6.0
    assert ran() == ["at_most", "numbers", "total"]
    run = ledger.get_run("last")
    latest = ledger.latest_attempts(run.id)
    assert (run.pipeline, run.state, run.entrypoint) == (
        "add_up",
        "success",
        "sample_flows.add_up",
    )
    assert run.parameters == {"count": 4, "limit": 100.0}
    assert {name: a.state for name, a in latest.items()} == {
        "numbers": "success",
        "total": "success",
        "at_most": "success",
    }
    assert latest["total"].depends_on == ("numbers",)
    assert latest["total"].profile == "other"
    assert latest["total"].result == 6.0
    assert latest["total"].usage["peak_memory_mib"] > 5
    assert "counting to 4" in Path(latest["numbers"].log_path).read_text()


def test_submitted_tasks_wait_for_what_they_are_given(flows, ledger, ran):
    assert flows.chained(count=3) == 6.0
    assert ran() == ["at_most", "numbers", "total"]
    latest = ledger.latest_attempts(ledger.get_run("last").id)
    assert latest["at_most"].depends_on == ("numbers", "total")


def test_mapped_items_are_known_by_their_keys(flows, ledger, ran):
    assert flows.squares(items=[3, 1, 2]) == [9, 1, 4]
    assert ran() == ["square/1", "square/2", "square/3"]
    assert set(ledger.latest_attempts(ledger.get_run("last").id)) == {
        "square/1",
        "square/2",
        "square/3",
    }


def test_a_pipeline_that_forgets_a_failed_task_is_not_green(flows, ledger):
    with pytest.raises(RunFailedError, match="at_most"):
        flows.forgotten(limit=0.5)
    run = ledger.get_run("last")
    latest = ledger.latest_attempts(run.id)
    assert run.state == "failed"
    assert latest["at_most"].state == "failed"
    assert latest["day_after"].state == "upstream_failed"


def test_a_task_that_fails_twice_succeeds_at_its_third_try(flows, ledger, ran):
    assert flows.tries() == 3
    assert ran() == ["flaky"] * 3
    run = ledger.get_run("last")
    assert [(a.number, a.state) for a in ledger.attempts(run.id)] == [
        (1, "failed"),
        (2, "failed"),
        (3, "success"),
    ]
    assert run.state == "success"


def test_wrong_input_is_never_retried(flows, ran):
    with pytest.raises(TaskFailedError, match="no such day"):
        flows.refused()
    assert ran() == ["wrong_input"]


def test_parameters_keep_their_types_on_the_way(flows):
    assert flows.dated(day=date(2013, 1, 30)) == "2013-01-31"
    assert flows.dated(day="2013-01-30") == "2013-01-31"


def test_a_frame_as_a_result_is_refused_with_what_to_do(flows, ledger):
    with pytest.raises(ResultError, match="write_arrow"):
        flows.framed()
    run = ledger.get_run("last")
    assert run.state == "failed"
    assert ledger.latest_attempts(run.id)["give_frame"].error.retryable is False


def test_the_memory_limit_names_the_profile(flows, ledger):
    with pytest.raises(MemoryLimitError, match="tiny") as caught:
        flows.hungry()
    assert "memory" in str(caught.value)
    assert ledger.latest_attempts(ledger.get_run("last").id)["eat_memory"].state == "crashed"


def test_a_pipeline_may_be_async(flows):
    assert asyncio.run(flows.waiting(count=3)) == 3.0


def test_a_pipeline_inside_another_has_a_run_of_its_own(flows, ledger):
    assert flows.outer(count=3) == 3.0
    inner, outer = ledger.list_runs(limit=2)
    if inner.pipeline == "outer":
        inner, outer = outer, inner
    assert inner.parent_run_id == outer.id
    assert (inner.state, outer.state) == ("success", "success")


def test_a_table_reference_passes_between_tasks(flows, ledger):
    assert flows.tabled(rows=7) == 7
    latest = ledger.latest_attempts(ledger.get_run("last").id)
    written, read = latest["make_table"].outputs[0], latest["read_back"].inputs[0]
    assert written.ref == read.ref
    assert (written.ref.name, written.ref.row_count) == ("sample/numbers", 7)


def test_unknown_and_mistyped_parameters_are_named(flows):
    with pytest.raises(ParameterError, match="no parameter 'cuont'") as caught:
        flows.add_up.check_parameters({"cuont": 3})
    assert "use count" in str(caught.value)
    with pytest.raises(ParameterError, match="wrong type"):
        flows.add_up.check_parameters({"count": "three"})
    with pytest.raises(ParameterError, match="'day' has no value"):
        flows.dated.check_parameters({})


def test_a_task_is_a_plain_function_outside_a_pipeline(sample_root, notes):
    import sample_steps as steps

    assert steps.total({"numbers": [1, 2]}, factor=3) == 9.0
    assert notes.read_text() == "local\n"


def test_options_make_a_copy_with_another_profile(flows, sample_root):
    import sample_steps as steps

    other = steps.numbers.with_options(profile="other", timeout_s=5, retries=4)
    assert isinstance(other, EngineTask)
    assert (other.settings.profile, other.settings.timeout_s, other.retries) == ("other", 5, 4)
    assert steps.numbers.settings.profile is None


def test_a_task_in_a_plain_flow_says_to_use_pipeline(project):
    import sample_steps as steps
    from prefect import flow

    @flow
    def plain():
        return steps.numbers(2)

    with pytest.raises(TaskDefinitionError, match="@pipeline"):
        plain()


def test_a_task_inside_a_function_is_refused(flows):
    from headrace.orchestration.pipeline import pipeline

    @python_task
    def hidden() -> int:
        return 1

    @pipeline
    def local_flow():
        return hidden()

    with pytest.raises(TaskDefinitionError, match="top level"):
        local_flow()


@pytest.mark.parametrize("bad", ["async", "star", "key"])
def test_functions_that_can_not_be_tasks_are_refused(bad):
    async def coroutine():
        return 1

    def star(*values):
        return values

    def one(item):
        return item

    function, options = {
        "async": (coroutine, {}),
        "star": (star, {}),
        "key": (one, {"key": "itme"}),
    }[bad]
    with pytest.raises(TaskDefinitionError):
        python_task(**options)(function)
