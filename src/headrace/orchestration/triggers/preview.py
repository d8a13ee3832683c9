"""What would fire next, without firing anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.exceptions import HeadraceError
from headrace.ledger.store import Ledger
from headrace.orchestration.project import Project
from headrace.orchestration.triggers.find import served
from headrace.orchestration.triggers.kinds import make_watcher
from headrace.orchestration.triggers.watchers import Served, Surroundings
from headrace.triggers.decide import local_date, upcoming
from headrace.triggers.model import Cron, Interval, Trigger

if TYPE_CHECKING:
    from headrace.orchestration.pipeline import Pipeline


def next_firings(
    project: Project,
    ledger: Ledger,
    pipelines: Mapping[str, Pipeline[Any, Any]],
    *,
    count: int,
    only: str | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The next times of all schedules, and what the other triggers see now.

    Args:
        project: The project.
        ledger: Its ledger; it is only read.
        pipelines: The pipelines by name.
        count: How many times.
        only: The name of the one trigger to look at, or its beginning.
    """
    now = datetime.now(UTC)
    around = Surroundings(project=project, ledger=ledger, now=lambda: now)
    times: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for plain in served(dict(pipelines)):
        for trigger in plain.policy.triggers:
            if only and not trigger.name.startswith(only):
                continue
            record = ledger.find_trigger(plain.name, trigger.name)
            about = {"pipeline": plain.name, "trigger": trigger.name}
            if record is not None and record.is_paused:
                waiting.append({**about, "rule": trigger.rule, "now": "paused"})
            elif isinstance(trigger, Cron | Interval):
                watcher = make_watcher(plain, trigger, around)
                for moment in upcoming(trigger, now, count):
                    facts = {"moment": moment, "date": local_date(trigger, moment)}
                    run = watcher.request("", facts, skip_if_busy=False).run
                    parameters = run.parameters if run else {}
                    times.append({"time": moment.isoformat(), **about, "parameters": parameters})
            else:
                seen = _seen(ledger, plain, trigger, around)
                waiting.append({**about, "rule": trigger.rule, "now": seen})
    return sorted(times, key=lambda time: str(time["time"]))[:count], waiting


def _seen(ledger: Ledger, plain: Served, trigger: Trigger, around: Surroundings) -> str:
    record = ledger.find_trigger(plain.name, trigger.name)
    try:
        watcher = make_watcher(plain, trigger, around)
        proposal = watcher.force(record) if record is not None else None
    except (HeadraceError, OSError) as error:
        return (str(error).splitlines() or ["?"])[0]
    if record is None:
        return "not served yet"
    if proposal is None or not proposal.firings or trigger.kind in ("continuous", "pipeline"):
        return "nothing new"
    facts = proposal.firings[0].facts
    if trigger.kind == "files":
        return f"{facts['count']} new files"
    return ", ".join(f"{name} at version {number}" for name, number in facts["versions"].items())
