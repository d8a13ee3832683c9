"""Shows pipelines and their schedules in Prefect, and reads there what people decided."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headrace.ledger.firing_records import FiringRequest, TriggerRecord
from headrace.ledger.records import ACTIVE, RunRequest
from headrace.orchestration.triggers.serve import MANUAL
from headrace.orchestration.triggers.start import DEPLOYMENT
from headrace.orchestration.triggers.watchers import Served, Surroundings
from headrace.triggers.model import Cron, Interval, Trigger

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

    from headrace.orchestration.pipeline import Pipeline
    from headrace.orchestration.triggers.starter import ProcessStarter

log = logging.getLogger("headrace.serve")

# Prefect's page shows so many coming runs of a schedule.
_SHOWN_RUNS: Final = 3
# Prefect puts down the runs of a whole hour, which are hundreds of shorter ones.
_SHORTEST_S: Final = 60
_RETRY_PRESSED: Final = "Retry from the UI"
_OWN_KEY: Final = "headrace-"
_LEFT_OVER: Final = timedelta(minutes=5)


@dataclass
class PrefectSide:
    """Prefect's page and what serves, kept in step.

    Args:
        around: Project and ledger.
        pipelines: The pipelines, with their code.
        served: The same without.
        starter: Starts a flow run again whose Retry was pressed.
    """

    around: Surroundings
    pipelines: Mapping[str, Pipeline[Any, Any]]
    served: Mapping[str, Served]
    starter: ProcessStarter
    deployments: dict[str, UUID] = field(default_factory=dict)

    def turn(self) -> None:
        """Deploy what is not deployed, then read pauses, manual runs, retries and cancels."""
        from prefect.client.orchestration import get_client

        self.around.project.ensure_prefect()
        with get_client(sync_client=True) as client:
            for name, pipeline in self.pipelines.items():
                if name not in self.deployments:
                    self.deployments[name] = _deploy(client, pipeline)
                    log.info("%s: deployed to Prefect", name)
            self._read_pauses(client)
            self._read_flow_runs(client)

    def _read_pauses(self, client: SyncPrefectClient) -> None:
        records = self.around.ledger.list_triggers(self.served)
        for name, deployment_id in tuple(self.deployments.items()):
            found = _read_deployment(client, deployment_id)
            if found is None:
                # Deleted there, or the database is a new one: it is made again.
                del self.deployments[name]
                continue
            active = {schedule.slug: schedule.active for schedule in found.schedules}
            for record in records:
                if record.pipeline == name and record.name != MANUAL:
                    paused = bool(found.paused) or not active.get(record.name, True)
                    self._note_pause(record, paused=paused)

    def _note_pause(self, record: TriggerRecord, *, paused: bool) -> None:
        if paused == record.paused_in_prefect:
            return
        self.around.ledger.note_pause_in_prefect(
            record, paused=paused, now=self.around.now().isoformat()
        )
        said = "paused" if paused else "resumed"
        log.info("%s: %s was %s in Prefect", record.pipeline, record.name, said)

    def _read_flow_runs(self, client: SyncPrefectClient) -> None:
        by_id = {deployment_id: name for name, deployment_id in self.deployments.items()}
        for flow_run in _open_flow_runs(client, list(by_id)):
            name = by_id.get(flow_run.deployment_id) if flow_run.deployment_id else None
            state = flow_run.state
            if name is None or state is None:
                continue
            if state.is_cancelling():
                self._cancel(client, flow_run)
            elif flow_run.auto_scheduled:
                self._drop_left_over(client, name, flow_run)
            elif state.name == "AwaitingRetry":
                # A flow's own `retries=` waits in this state too, inside its process.
                if state.message != _RETRY_PRESSED:
                    continue
                entrypoint = self.served[name].entrypoint
                key = f"retry-{flow_run.id}-{flow_run.run_count}"
                self.starter.spawn(key, ["--flow-run", str(flow_run.id), entrypoint], pipeline=name)
            elif not (flow_run.idempotency_key or "").startswith(_OWN_KEY):
                self._take(name, flow_run)

    def _cancel(self, client: SyncPrefectClient, flow_run: FlowRun) -> None:
        from prefect.states import Cancelled

        run = self.around.ledger.run_of_flow_run(str(flow_run.id))
        asked = run is not None and self.around.ledger.request_cancel(run.id)
        if not asked or (run is not None and run.state not in ACTIVE):
            client.set_flow_run_state(flow_run.id, Cancelled(), force=True)

    def _drop_left_over(self, client: SyncPrefectClient, name: str, flow_run: FlowRun) -> None:
        """Close what Prefect put down for a time that was decided otherwise."""
        from prefect.states import Cancelled

        moment = flow_run.expected_start_time
        if moment is None or self.around.now() - moment < _LEFT_OVER:
            return
        if any(
            firing.logical_time == moment and firing.decision == "run"
            for firing in self.around.ledger.list_firings(name, limit=50)
        ):
            return  # Its run still waits.
        message = "headrace: this time was skipped, missed, or has its run already"
        client.set_flow_run_state(
            flow_run.id, Cancelled(name="Skipped", message=message), force=True
        )

    def _take(self, name: str, flow_run: FlowRun) -> None:
        """Give a flow run that somebody started on the page its run in the ledger."""
        served, ledger = self.served[name], self.around.ledger
        record = ledger.register_trigger(
            name, MANUAL, kind="manual", rule="runs started on Prefect's page", cursor={}
        )
        key = str(flow_run.id)
        if ledger.fired_keys(name, MANUAL, [key]):
            return
        request = RunRequest(
            pipeline=name,
            entrypoint=served.entrypoint,
            parameters=flow_run.parameters,
            environment=self.around.project.environment.name,
            user=self.around.user,
            code=self.around.code,
            tags={"trigger": MANUAL, **dict.fromkeys(flow_run.tags, "")},
        )
        firing = FiringRequest(key=key, facts={"flow_run_id": key}, run=request)
        ledger.fire(record, cursor={}, firings=[firing])


def set_schedule_active(pipeline: str, triggers: Sequence[str], *, active: bool) -> bool:
    """Pause or resume schedules on Prefect's page.

    Returns:
        Whether Prefect knows the pipeline.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(f"{pipeline}/{DEPLOYMENT}")
        except ObjectNotFound:
            return False
        if active and found.paused:
            client.resume_deployment(found.id)
        for schedule in found.schedules:
            if schedule.slug in triggers and schedule.active != active:
                client.update_deployment_schedule(found.id, schedule.id, active=active)
    return True


def _deploy(client: SyncPrefectClient, pipeline: Pipeline[Any, Any]) -> UUID:
    """Make the pipeline's deployment, or bring it up to date; a pause there stays."""
    from prefect.exceptions import ObjectNotFound

    wanted = [_schedule(trigger) for trigger in pipeline.policy.triggers]
    schedules = [schedule for schedule in wanted if schedule is not None]
    try:
        found = client.read_deployment_by_name(f"{pipeline.name}/{DEPLOYMENT}")
    except ObjectNotFound:
        found = None
    if found is not None:
        active = {schedule.slug: schedule.active for schedule in found.schedules}
        schedules = [
            schedule.model_copy(update={"active": active.get(schedule.slug, True)})
            for schedule in schedules
        ]
        if _is_current(found, pipeline, schedules):
            # Prefect throws away the coming runs of a deployment that is made again.
            return found.id
    deployment = pipeline.to_deployment(
        DEPLOYMENT,
        schedules=schedules,
        description=pipeline.description,
        **({"paused": found.paused} if found is not None else {}),
    )
    made: UUID = deployment.apply(_sync=True)
    return made


def _is_current(
    found: DeploymentResponse,
    pipeline: Pipeline[Any, Any],
    schedules: list[DeploymentScheduleCreate],
) -> bool:
    there = {schedule.slug: _plain(schedule.schedule) for schedule in found.schedules}
    wanted = {schedule.slug: _plain(schedule.schedule) for schedule in schedules}
    return (
        there == wanted
        and found.entrypoint == pipeline.entrypoint
        and found.parameter_openapi_schema == pipeline.parameters.model_dump_for_openapi()
    )


def _plain(schedule: Any) -> tuple[Any, ...]:
    values = schedule.model_dump(mode="json")
    return tuple(values.get(name) for name in ("cron", "timezone", "interval"))


def _schedule(trigger: Trigger) -> DeploymentScheduleCreate | None:
    """A schedule as Prefect shows it; one that its reader refuses is left out there."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

    shown: CronSchedule | IntervalSchedule
    try:
        if isinstance(trigger, Cron):
            shown = CronSchedule(cron=trigger.expression, timezone=trigger.tz)
        elif isinstance(trigger, Interval) and trigger.every_s >= _SHORTEST_S:
            shown = IntervalSchedule(
                interval=timedelta(seconds=trigger.every_s), anchor_date=trigger.anchor
            )
        else:
            return None
    except ValueError as error:
        log.warning("%s is not shown in Prefect: %s", trigger.name, error)
        return None
    return DeploymentScheduleCreate(
        schedule=shown, slug=trigger.name, active=True, max_scheduled_runs=_SHOWN_RUNS
    )


def _read_deployment(client: SyncPrefectClient, deployment_id: UUID) -> DeploymentResponse | None:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment(deployment_id)
    except ObjectNotFound:
        return None


def _open_flow_runs(client: SyncPrefectClient, deployment_ids: list[UUID]) -> list[FlowRun]:
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    if not deployment_ids:
        return []
    return client.read_flow_runs(
        flow_run_filter=filters.FlowRunFilter(
            deployment_id=filters.FlowRunFilterDeploymentId(any_=deployment_ids),
            state=filters.FlowRunFilterState(
                type=filters.FlowRunFilterStateType(
                    any_=[StateType.SCHEDULED, StateType.CANCELLING]
                )
            ),
            expected_start_time=filters.FlowRunFilterExpectedStartTime(
                before_=datetime.now(UTC) + timedelta(seconds=1)
            ),
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        limit=200,
    )
