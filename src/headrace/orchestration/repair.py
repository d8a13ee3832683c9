"""Repair a run: plan, claim in the ledger, run the pipeline again over it."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from headrace.exceptions import NothingToRepairError
from headrace.ledger.records import RepairRequest, RunRecord, merged_parameters
from headrace.ledger.repair import RepairPlan
from headrace.orchestration.code_version import code_version
from headrace.orchestration.options import Claimed, RunOptions, use_options
from headrace.orchestration.pinned import check_reused_tables
from headrace.orchestration.project import Project


@dataclass(frozen=True, kw_only=True)
class PlannedRepair:
    """A repair that was thought through and not started.

    Attributes:
        run: The run.
        request: What was asked for.
        plan: What happens to each task.
        after_seq: The last repair that the plan knows.
        parameters: The parameters of the tasks that run again, as JSON values.
        inherited: Names of those that nobody gave for this repair.
    """

    run: RunRecord
    request: RepairRequest
    plan: RepairPlan
    after_seq: int
    parameters: dict[str, Any]
    inherited: frozenset[str]


def prepare_repair(project: Project, run: str, request: RepairRequest) -> PlannedRepair:
    """Plan a repair. Nothing changes but that attempts without a live lease count as crashed.

    Args:
        project: The project.
        run: Id of the run, the beginning of one, or `last`.
        request: What to run again; its user and code are filled in.

    Raises:
        RunNotFoundError: There is no such run.
        TaskNotFoundError: The request names a task that the run never had.
    """
    user, code = getpass.getuser(), code_version(project.root)
    request = request.model_copy(update={"user": user, "code": code})
    with project.open_ledger() as ledger:
        ledger.reap_expired()
        record = ledger.get_run(run)
        last = ledger.current_repair(record.id)
        plan = ledger.plan_repair(record.id, request)
    # Overrides of earlier repairs stay in force until they are overridden themselves.
    earlier = merged_parameters(record, last)
    parameters = {**earlier, **request.parameters}
    inherited = frozenset(earlier.keys() - request.parameters.keys())
    request = request.model_copy(update={"parameters": {**last.parameters, **request.parameters}})
    return PlannedRepair(
        run=record,
        request=request,
        plan=plan,
        after_seq=last.seq,
        parameters=parameters,
        inherited=inherited,
    )


def claim_repair(project: Project, planned: PlannedRepair) -> Claimed:
    """Start the repair in the ledger; this process drives it from now on.

    Raises:
        NothingToRepairError: The run is green, and no task was named.
        ReusedTableGoneError: A task would read a reused table version that is gone.
        RunBusyError: The run, or one of its attempts, is alive.
        RepairConflictError: Somebody else started a repair since it was planned.
    """
    if planned.plan.is_empty and planned.run.state == "success":
        raise NothingToRepairError(run_id=planned.run.id, tasks=planned.plan.names("reuse"))
    with project.open_ledger() as ledger:
        check_reused_tables(project, ledger, planned.run.id, planned.plan)
        repair = ledger.start_repair(
            planned.run.id, planned.request, plan=planned.plan, after_seq=planned.after_seq
        )
        return Claimed(run=ledger.get_run(planned.run.id), repair=repair, plan=planned.plan)


def repair(
    run: str = "last",
    *,
    tasks: tuple[str, ...] = (),
    with_dependents: bool = False,
    parameters: dict[str, Any] | None = None,
    env: str | None = None,
) -> Any:
    """Run again what did not succeed in a run, and what depends on it.

    Everything else is reused with the table versions that it made, even if the tables have moved
    on.

    Args:
        run: Id of the run, the beginning of one, or `last`.
        tasks: Tasks to run again instead of every unsuccessful one.
        with_dependents: With `tasks`: also what depends on them.
        parameters: Parameters to change, for the tasks that run again.
        env: Name of the environment; HEADRACE_ENV, else `local`, by default.

    Returns:
        What the pipeline returns.

    Raises:
        NothingToRepairError, ReusedTableGoneError, RunBusyError, RepairConflictError,
            RunNotFoundError: See there.
    """
    from headrace.orchestration.find_flow import load_pipeline
    from headrace.orchestration.project import load_project

    with use_options(RunOptions(env=env)):
        project = load_project()
        request = RepairRequest(
            tasks=tasks, with_dependents=with_dependents, parameters=parameters or {}
        )
        planned = prepare_repair(project, run, request)
        project.ensure_prefect()
        pipeline = load_pipeline(planned.run.entrypoint, root=project.root)
        typed = pipeline.check_parameters(planned.parameters, inherited=planned.inherited)
        claimed = claim_repair(project, planned)
        with use_options(RunOptions(env=env, root=project.root, claimed=claimed)):
            return pipeline(**typed)
