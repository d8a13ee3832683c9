"""Firing a trigger by hand, and switching its schedule in Prefect."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.exceptions import TriggerDefinitionError, TriggerNotFoundError
from headrace.ledger.firing_records import TriggerRecord
from headrace.ledger.store import Ledger
from headrace.orchestration.code_version import code_version
from headrace.orchestration.prefect_api import configured_api, project_server, use_prefect
from headrace.orchestration.project import Project
from headrace.orchestration.triggers.find import served
from headrace.orchestration.triggers.kinds import make_watcher
from headrace.orchestration.triggers.prefect_side import set_schedule_active
from headrace.orchestration.triggers.watchers import Proposal, Surroundings

if TYPE_CHECKING:
    from headrace.orchestration.pipeline import Pipeline

log = logging.getLogger("headrace.serve")


def propose_by_hand(
    project: Project, ledger: Ledger, pipeline: Pipeline[Any, Any], name: str | None
) -> tuple[Proposal, TriggerRecord]:
    """What firing a trigger now would record.

    Args:
        project: The project.
        ledger: Its ledger.
        pipeline: The pipeline.
        name: The trigger's name or its beginning; None when the pipeline has one.

    Raises:
        TriggerNotFoundError: No trigger, or several, have the name.
        TriggerDefinitionError: A file trigger has no file that is new.
    """
    triggers = pipeline.policy.triggers
    fitting = [t for t in triggers if t.name == name] or [
        t for t in triggers if t.name.startswith(name or "")
    ]
    if len(fitting) != 1:
        raise TriggerNotFoundError(
            name=f"{pipeline.name} {name or ''}".strip(), defined=[t.name for t in triggers]
        )
    [trigger] = fitting
    around = Surroundings(
        project=project, ledger=ledger, user=getpass.getuser(), code=code_version(project.root)
    )
    [plain] = served({pipeline.name: pipeline})
    watcher = make_watcher(plain, trigger, around)
    record = ledger.find_trigger(pipeline.name, trigger.name) or ledger.register_trigger(
        pipeline.name,
        trigger.name,
        kind=trigger.kind,
        rule=trigger.rule,
        cursor=watcher.first_cursor(),
    )
    proposal = watcher.force(record)
    if proposal is None:
        raise TriggerDefinitionError(
            trigger=f"Trigger {trigger.name} of {pipeline.name}",
            problem="there is nothing that it could hand to a run",
            found=f"It waits for {trigger.rule}.",
            fix=f"headrace run {pipeline.entrypoint} --param NAME=VALUE",
        )
    return proposal, record


def fire_by_hand(ledger: Ledger, record: TriggerRecord, proposal: Proposal) -> str:
    """Record it, also while the trigger is paused.

    Raises:
        TriggerDefinitionError: What serves fired the same at this moment.
    """
    made = ledger.fire(
        record, cursor=proposal.cursor, firings=proposal.firings, files=proposal.files, by_hand=True
    )
    run_id = made[0].run_id if made else None
    if run_id is None:
        raise TriggerDefinitionError(
            trigger=f"Trigger {record.name} of {record.pipeline}",
            problem="it fired by itself at this moment",
            found="Its run is there.",
            fix=f"headrace triggers show {record.pipeline}",
        )
    return run_id


def switch_in_prefect(
    project: Project, pipeline: str, records: Sequence[TriggerRecord], *, active: bool
) -> bool:
    """Pause or resume schedules on Prefect's page, if a server answers; none is started for it."""
    environment = project.environment
    url = configured_api(environment) or project_server(environment, project.state).find()
    if url is None:
        return False
    use_prefect(url if url.endswith("/api") else f"{url}/api")
    try:
        set_schedule_active(pipeline, [record.name for record in records], active=active)
    except Exception as error:  # noqa: BLE001 - the ledger decides; the page is told later
        log.warning("Prefect: %s", error)
        return False
    return True
