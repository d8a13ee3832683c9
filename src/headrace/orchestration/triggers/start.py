"""`python -m headrace.orchestration.triggers.start RUN`: drive one run that waits in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headrace.exceptions import (
    HeadraceError,
    LeaseLostError,
    RunBusyError,
    RunTrackingError,
    ServerStartError,
    SlotsFullError,
)
from headrace.ledger.records import RunRecord
from headrace.ledger.store import Ledger
from headrace.orchestration.options import Claimed, RunOptions, use_options
from headrace.orchestration.project import Project, load_project

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from headrace.orchestration.pipeline import Pipeline

log = logging.getLogger("headrace.serve")

EXIT_BUSY: Final = 75
"""The pipeline has as many runs at work as may be: try again later."""

DEPLOYMENT: Final = "headrace"
"""Name of the deployment of each pipeline."""

_PAUSE_S: Final = 5.0
_DEPLOY_S: Final = 60.0


def start_run(run_id: str) -> int:
    """Claim a run and drive it to its end; somebody else's run is left alone.

    Prefect is waited for: the run stays in the ledger until it can be shown.

    Returns:
        An exit code: 0 when there is nothing left to do, 75 when the pipeline is busy.
    """
    project = load_project()
    with project.open_ledger() as ledger:
        run = ledger.get_run(run_id)
        if run.state != "queued":
            return 0
        try:
            pipeline, parameters = _load(project, run)
        except HeadraceError as error:
            return _refuse(ledger, run, error)
        flow_run = _patiently(lambda: _flow_run(project, ledger, run))
        if flow_run is not None and flow_run.state is not None and flow_run.state.is_final():
            # Cancelled on Prefect's page before it began.
            ledger.request_cancel(run.id)
            return 0
        try:
            repair = ledger.claim_repair(run.id, max_concurrent=pipeline.policy.max_concurrent)
        except SlotsFullError:
            return EXIT_BUSY
        except (LeaseLostError, RunBusyError):
            return 0
        claimed = Claimed(run=ledger.get_run(run.id), repair=repair)
    options = RunOptions(env=run.environment, root=project.root, claimed=claimed)
    with use_options(options):
        _drive(pipeline, flow_run, parameters)
    return 0


def retry_flow_run(flow_run_id: str, entrypoint: str) -> int:
    """Run a flow run again whose Retry was pressed on Prefect's page: its run is repaired."""
    from prefect.client.orchestration import get_client

    from headrace.orchestration.find_flow import load_pipeline

    project = load_project()
    _patiently(project.ensure_prefect)
    pipeline = load_pipeline(entrypoint, root=project.root)
    with get_client(sync_client=True) as client:
        flow_run = _pending(client, client.read_flow_run(UUID(flow_run_id)))
    with use_options(RunOptions(root=project.root)):
        _drive(pipeline, flow_run, pipeline.check_parameters(flow_run.parameters))
    return 0


def _load(project: Project, run: RunRecord) -> tuple[Pipeline[Any, Any], dict[str, Any]]:
    from headrace.orchestration.find_flow import load_pipeline

    pipeline = load_pipeline(run.entrypoint, root=project.root)
    return pipeline, pipeline.check_parameters(run.parameters)


def _refuse(ledger: Ledger, run: RunRecord, error: HeadraceError) -> int:
    """End a run whose code or parameters are wrong: nobody's patience would help."""
    log.error("%s", error)
    with contextlib.suppress(LeaseLostError, RunBusyError, SlotsFullError):
        repair = ledger.claim_repair(run.id)
        ledger.finish_run(run.id, 0, "failed", token=repair.token or "")
    return 0


def _patiently(work: Any) -> Any:
    """Do what needs Prefect, as often as it takes."""
    from httpx import HTTPError

    while True:
        try:
            return work()
        except (HTTPError, RunTrackingError, ServerStartError, OSError) as error:
            log.warning("Prefect does not answer, waiting: %s", str(error).splitlines()[0])
            time.sleep(_PAUSE_S)


def _flow_run(project: Project, ledger: Ledger, run: RunRecord) -> FlowRun | None:
    """The flow run that shows a run, ready to begin; None when there is no deployment."""
    from prefect.client.orchestration import get_client

    project.ensure_prefect()
    with get_client(sync_client=True) as client:
        found = _find_flow_run(client, ledger, run)
        return _pending(client, found) if found is not None else None


def _find_flow_run(client: SyncPrefectClient, ledger: Ledger, run: RunRecord) -> FlowRun | None:
    """One that Prefect has for the run already, or a new one."""
    firing = ledger.firing_of_run(run.id)
    known = firing.facts.get("flow_run_id") if firing else None
    if known:
        return client.read_flow_run(UUID(known))
    deployment_id = _deployment(client, run.pipeline)
    if deployment_id is None:
        return None
    if firing is not None and firing.logical_time is not None:
        found = _scheduled(client, deployment_id, firing.logical_time)
        if found is not None:
            return found
    return client.create_flow_run_from_deployment(
        deployment_id,
        parameters=run.parameters,
        tags=[f"trigger:{run.tags.get('trigger', '')}"],
        # Two that start the same run are given the same flow run.
        idempotency_key=f"headrace-{run.id}",
    )


def _deployment(client: SyncPrefectClient, pipeline: str) -> UUID | None:
    """The pipeline's deployment; whoever serves may be about to make it."""
    from prefect.exceptions import ObjectNotFound

    end = time.monotonic() + _DEPLOY_S
    while True:
        try:
            return client.read_deployment_by_name(f"{pipeline}/{DEPLOYMENT}").id
        except ObjectNotFound:
            if time.monotonic() > end:
                return None
        time.sleep(1)


def _pending(client: SyncPrefectClient, flow_run: FlowRun) -> FlowRun:
    from prefect.states import Pending

    if flow_run.state is not None and flow_run.state.is_scheduled():
        client.set_flow_run_state(flow_run.id, Pending(), force=True)
    return client.read_flow_run(flow_run.id)


def _scheduled(client: SyncPrefectClient, deployment_id: UUID, moment: datetime) -> FlowRun | None:
    """The run that Prefect's own schedule has put down for a time."""
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    found = client.read_flow_runs(
        deployment_filter=filters.DeploymentFilter(
            id=filters.DeploymentFilterId(any_=[deployment_id])
        ),
        flow_run_filter=filters.FlowRunFilter(
            state=filters.FlowRunFilterState(
                type=filters.FlowRunFilterStateType(any_=[StateType.SCHEDULED])
            ),
            expected_start_time=filters.FlowRunFilterExpectedStartTime(
                after_=moment, before_=moment
            ),
        ),
        limit=5,
    )
    return next((flow_run for flow_run in found if flow_run.auto_scheduled), None)


def _drive(
    pipeline: Pipeline[Any, Any], flow_run: FlowRun | None, parameters: dict[str, Any]
) -> None:
    from prefect.flow_engine import run_flow

    if flow_run is not None:
        os.environ["PREFECT__FLOW_RUN_ID"] = str(flow_run.id)
    state = run_flow(pipeline, flow_run=flow_run, parameters=parameters, return_type="state")
    if inspect.isawaitable(state):
        asyncio.run(_wait(state))


async def _wait(state: Any) -> None:
    await state


def _interrupt(_signal: int, _frame: object) -> None:
    """TERM ends a run as Ctrl-C does: its tasks are ended first, and the ledger is told."""
    raise KeyboardInterrupt


def main() -> int:
    """Drive the run that the command line names."""
    signal.signal(signal.SIGTERM, _interrupt)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        if sys.argv[1] == "--flow-run":
            return retry_flow_run(sys.argv[2], sys.argv[3])
        return start_run(sys.argv[1])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
