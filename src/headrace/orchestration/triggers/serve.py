"""The loop of `headrace serve`: look at every trigger, record what is due, start what waits."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.exceptions import HeadraceError, LedgerUnavailableError
from headrace.ledger.firing_records import FiringRecord, TriggerRecord
from headrace.ledger.records import RunRecord
from headrace.orchestration.code_version import code_version
from headrace.orchestration.triggers.kinds import make_watcher
from headrace.orchestration.triggers.starter import Starter
from headrace.orchestration.triggers.watchers import (
    Served,
    Surroundings,
    Watcher,
)

log = logging.getLogger("headrace.serve")

MANUAL: Final = "prefect-page"
"""The trigger of runs that somebody started on Prefect's page."""

Records = dict[tuple[str, str], TriggerRecord]
"""The ledger's triggers by pipeline and name."""

POLL_S: Final = 1.0
_REAP_S: Final = 5.0
_CODE_S: Final = 30.0
# Another process that serves gets so long to start the runs that it has made.
_OTHERS_S: Final = 20.0
_LONGEST_PAUSE_S: Final = 30.0


@dataclass
class Serving:
    """Looks at the triggers of pipelines, again and again.

    Several may serve the same pipelines: the ledger lets one of them move a trigger's cursor, and
    one process drive a run.

    Args:
        around: Project, ledger and clocks.
        pipelines: What is served.
        starter: Starts runs.
        poll_s: Between two looks.
    """

    around: Surroundings
    pipelines: Sequence[Served]
    starter: Starter
    poll_s: float = POLL_S
    _watchers: list[Watcher] = field(default_factory=list)
    _made_here: set[str] = field(default_factory=set)
    _waiting_since: dict[str, float] = field(default_factory=dict)
    _problems: dict[tuple[str, str], str] = field(default_factory=dict)
    _next_reap: float = 0.0
    _next_code: float = 0.0

    def __post_init__(self) -> None:
        self._watchers = [
            make_watcher(pipeline, trigger, self.around)
            for pipeline in self.pipelines
            for trigger in pipeline.policy.triggers
        ]

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set; a ledger that is away is waited for."""
        pause = self.poll_s
        while not stop.wait(pause):
            try:
                self.turn()
                pause = self.poll_s
            except LedgerUnavailableError as error:
                pause = min(max(pause, 1.0) * 2, _LONGEST_PAUSE_S)
                log.warning("the ledger is away, waiting: %s", _first(error))

    def turn(self) -> list[FiringRecord]:
        """One look at everything; gives what was recorded."""
        now = self.around.clock()
        if now >= self._next_code:
            self.around.code = code_version(self.around.project.root)
            self._next_code = now + _CODE_S
        if now >= self._next_reap:
            self._reap()
            self._next_reap = now + _REAP_S
        made = self._look()
        self._start_waiting()
        return made

    def _look(self) -> list[FiringRecord]:
        names = [pipeline.name for pipeline in self.pipelines]
        records = {
            (record.pipeline, record.name): record
            for record in self.around.ledger.list_triggers(names)
        }
        # All cursors are set before the first firing: a pipeline that waits for the end of another
        # one must not miss a run that this very look makes.
        self._for_each_watcher(records, self._register)
        made: list[FiringRecord] = []
        self._for_each_watcher(
            records, lambda watcher, known: made.extend(self._look_at(watcher, known))
        )
        return made

    def _for_each_watcher(
        self, records: Records, work: Callable[[Watcher, Records], object]
    ) -> None:
        """One trigger's problem is noted and doesn't hold up the others."""
        for watcher in self._watchers:
            try:
                work(watcher, records)
            except LedgerUnavailableError:
                raise
            except (HeadraceError, OSError, ValueError) as error:
                self._note_problem(watcher, records, _first(error))

    def _register(self, watcher: Watcher, records: Records) -> None:
        pipeline, trigger = watcher.pipeline, watcher.trigger
        name = (pipeline.name, trigger.name)
        record = records.get(name)
        if record is not None and (record.kind, record.rule) == (trigger.kind, trigger.rule):
            return
        cursor = record.cursor if record is not None else watcher.first_cursor()
        records[name] = self.around.ledger.register_trigger(
            *name, kind=trigger.kind, rule=trigger.rule, cursor=cursor
        )

    def _look_at(self, watcher: Watcher, records: Records) -> list[FiringRecord]:
        pipeline, trigger = watcher.pipeline, watcher.trigger
        record = records.get((pipeline.name, trigger.name))
        if record is None or record.is_paused:
            return []
        proposal = watcher.look(record)
        self._note_problem(watcher, records, None)
        if proposal is None:
            return []
        made = self.around.ledger.fire(
            record,
            cursor=proposal.cursor,
            firings=proposal.firings,
            files=proposal.files,
            max_concurrent=pipeline.policy.max_concurrent,
        )
        for firing in made or ():
            self._tell(firing)
        return made or []

    def _tell(self, firing: FiringRecord) -> None:
        if firing.run_id:
            self._made_here.add(firing.run_id)
        what = f"run {firing.run_id}" if firing.run_id else f"{firing.decision} ({firing.reason})"
        log.info("%s: %s: %s: %s", firing.pipeline, firing.trigger, firing.key, what)

    def _note_problem(
        self,
        watcher: Watcher,
        records: Records,
        problem: str | None,
    ) -> None:
        name = (watcher.pipeline.name, watcher.trigger.name)
        record = records.get(name)
        if problem is not None and self._problems.get(name) != problem:
            self._problems[name] = problem
            log.error("%s: %s can't be looked at: %s", *name, problem)
        elif problem is None:
            self._problems.pop(name, None)
        if record is not None and record.problem != problem:
            self.around.ledger.note_problem(record.id, problem)

    def _reap(self) -> None:
        reaped = self.around.ledger.reap_expired()
        for repair in reaped.repairs:
            log.error("run %s has no living process any more: crashed", repair.run_id)

    def _start_waiting(self) -> None:
        """Start runs that wait, the oldest first, as many as may be at work."""
        by_name = {pipeline.name: pipeline for pipeline in self.pipelines}
        waiting = self.around.ledger.waiting_runs(by_name)
        if not waiting:
            self._waiting_since = {}
            self._made_here = set()
            return
        starting = self.starter.starting(waiting)
        at_work: Counter[str] = Counter()
        for name in {run.pipeline for run in waiting}:
            active = self.around.ledger.active_runs(name)
            at_work[name] = sum(run.state == "running" for run in active) + starting[name]
        for run in waiting:
            most = by_name[run.pipeline].policy.max_concurrent
            if at_work[run.pipeline] < most and self._is_ours(run) and self.starter.start(run):
                at_work[run.pipeline] += 1

    def _is_ours(self, run: RunRecord) -> bool:
        """Whether this process made the run, or a person did, or nobody has started it for long."""
        now = self.around.clock()
        by_hand = (run.trigger_key or "").partition(":")
        if by_hand[0] == MANUAL or by_hand[2].startswith("manual:"):
            return True
        since = self._waiting_since.setdefault(run.id, now)
        return run.id in self._made_here or now - since >= _OTHERS_S


def keep_doing(
    work: Callable[[], object], *, every_s: float, name: str, stop: threading.Event
) -> threading.Thread:
    """Do something every few seconds in a thread, whatever happens to it.

    Args:
        work: What to do.
        every_s: Between the end of one and the beginning of the next.
        name: For the log.
        stop: Ends it.
    """

    def loop() -> None:
        told = ""
        pause = 0.0
        while not stop.wait(pause):
            try:
                work()
                if told:
                    log.info("%s works again", name)
                told, pause = "", every_s
            except Exception as error:  # noqa: BLE001 - it is tried again, whatever it was
                text = f"{type(error).__name__}: {_first(error)}"
                if text != told:
                    log.warning("%s does not work now: %s", name, text)
                told, pause = text, min(max(pause, 1.0) * 2, _LONGEST_PAUSE_S)

    thread = threading.Thread(target=loop, name=f"headrace-{name}", daemon=True)
    thread.start()
    return thread


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
