"""Which watcher a trigger has."""

from __future__ import annotations

from headrace.orchestration.triggers.data_watchers import FileWatcher, TableWatcher
from headrace.orchestration.triggers.watchers import (
    ContinuousWatcher,
    PipelineWatcher,
    ScheduleWatcher,
    Served,
    Surroundings,
    Watcher,
)
from headrace.triggers.model import (
    Continuous,
    Cron,
    FileArrival,
    Interval,
    PipelineEnd,
    TableUpdate,
    Trigger,
)


def make_watcher(pipeline: Served, trigger: Trigger, around: Surroundings) -> Watcher:
    """The watcher of a trigger."""
    kinds: dict[type[Trigger], type[Watcher]] = {
        Cron: ScheduleWatcher,
        Interval: ScheduleWatcher,
        TableUpdate: TableWatcher,
        FileArrival: FileWatcher,
        Continuous: ContinuousWatcher,
        PipelineEnd: PipelineWatcher,
    }
    return kinds[type(trigger)](pipeline, trigger, around)
