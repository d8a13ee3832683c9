"""Watchers of what lies in the lake and beside it: tables and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.context import resolve_table
from headrace.delta.poll import LogState, TablePoll
from headrace.ledger.firing_records import HandledFile, TriggerRecord
from headrace.orchestration.triggers.files import open_files
from headrace.orchestration.triggers.watchers import (
    Proposal,
    Served,
    Surroundings,
    Watcher,
    stamp,
)
from headrace.triggers.decide import (
    FileState,
    TableSeen,
    TableState,
    changed_tables,
    next_state,
    set_digest,
    waited,
)
from headrace.triggers.model import FileArrival, TableUpdate


class TableWatcher(Watcher):
    """Fires when tables have new rows."""

    trigger: TableUpdate

    def __init__(self, pipeline: Served, trigger: TableUpdate, around: Surroundings) -> None:
        super().__init__(pipeline, trigger, around)
        environment = around.project.environment
        self._polls = {
            name: TablePoll(resolve_table(name, lake=environment.lake), environment.storage)
            for name in trigger.tables
        }
        self._last: dict[str, LogState | None] = {}
        self._changed_at = around.clock()
        self._handled: tuple[int, dict[str, TableState]] = (-1, {})

    def first_cursor(self) -> dict[str, Any]:
        """What is there counts as handled, if the trigger says so."""
        if self.trigger.existing:
            return {"tables": {}}
        seen = {name: poll.look() for name, poll in self._polls.items()}
        return {
            "tables": {
                name: {"id": state.id, "version": state.version, "epoch": 0}
                for name, state in seen.items()
                if state
            }
        }

    def look(self, record: TriggerRecord) -> Proposal | None:
        """A run for new versions, once the tables are quiet."""
        found = {name: poll.look() for name, poll in self._polls.items()}
        if found == self._last and self._handled[0] == record.rev and not self._open:
            return None
        if found != self._last:
            self._last, self._changed_at = found, self.around.clock()
        handled = self._handled_states(record)
        seen = {
            name: TableSeen(
                id=state.id, version=state.version, changed=self._changes(name, handled)
            )
            for name, state in found.items()
            if state is not None
        }
        changed = changed_tables(self.trigger, handled, seen)
        self._open = bool(changed)
        if not changed:
            return self._forget_quiet_versions(handled, seen)
        quiet_for_s = self.around.clock() - self._changed_at
        if not waited(self.trigger, quiet_for_s=quiet_for_s, gap_s=self.gap_s(record)):
            return None
        if self.skips and self.is_busy():
            return None  # Nothing is lost: the next run gets these changes too.
        return self._propose(handled, seen, changed)

    _open = True

    def force(self, record: TriggerRecord) -> Proposal | None:
        """The newest versions, of every table that is there, whether they are new or not."""
        self._last = {name: poll.look() for name, poll in self._polls.items()}
        handled = self._handled_states(record)
        seen = {
            name: TableSeen(id=state.id, version=state.version)
            for name, state in self._last.items()
            if state is not None
        }
        changed = changed_tables(replace(self.trigger, when="any"), handled, seen)
        if changed:
            return self._propose(handled, seen, changed)
        if not seen:
            return None
        proposal = self._propose(handled, seen, tuple(seen))
        [firing] = proposal.firings
        # The versions have had their run: this is one more of them.
        again = firing.model_copy(update={"key": f"manual:{stamp(self.around.now())}"})
        return replace(proposal, cursor=record.cursor, firings=(again,))

    def _propose(
        self,
        handled: dict[str, TableState],
        seen: dict[str, TableSeen],
        changed: tuple[str, ...],
    ) -> Proposal:
        states = {
            **handled,
            **{name: next_state(handled.get(name), seen[name]) for name in changed},
        }
        key = ",".join(states[name].key for name in changed)
        previous = {
            name: handled[name].version
            if name in handled and handled[name].epoch == states[name].epoch
            else -1
            for name in changed
        }
        facts = {
            "table": changed[0],
            "version": states[changed[0]].version,
            "previous_version": previous[changed[0]],
            "versions": {name: states[name].version for name in changed},
            "previous_versions": previous,
        }
        return Proposal(
            cursor=_table_cursor(states),
            firings=(self.request(key, facts, skip_if_busy=False),),
        )

    def _forget_quiet_versions(
        self, handled: dict[str, TableState], seen: dict[str, TableSeen]
    ) -> Proposal | None:
        """Move past versions that change no row, so that their commits are not read again."""
        moved = {
            name: replace(state, version=seen[name].version)
            for name, state in handled.items()
            if name in seen
            and not seen[name].changed
            and seen[name].id == state.id
            and seen[name].version > state.version
        }
        return Proposal(cursor=_table_cursor({**handled, **moved})) if moved else None

    def _handled_states(self, record: TriggerRecord) -> dict[str, TableState]:
        if self._handled[0] != record.rev:
            states = {name: TableState(**state) for name, state in record.cursor["tables"].items()}
            self._handled = (record.rev, states)
        return self._handled[1]

    def _changes(self, name: str, handled: dict[str, TableState]) -> bool:
        state, found = handled.get(name), self._last[name]
        if state is None or found is None or found.id != state.id or found.version < state.version:
            return True
        return self._polls[name].changes_rows(state.version)


class FileWatcher(Watcher):
    """Fires when files have come and settled."""

    trigger: FileArrival

    def __init__(self, pipeline: Served, trigger: FileArrival, around: Surroundings) -> None:
        super().__init__(pipeline, trigger, around)
        project = around.project
        self._files = open_files(
            trigger.pattern,
            root=project.root,
            storage=project.environment.storage,
            clock=around.clock,
        )
        self._handled: set[FileState] = set()
        self._handled_id = 0
        self._rev = -1
        self._present: dict[str, FileState] = {}
        self._open: dict[str, tuple[FileState, float]] = {}

    def first_cursor(self) -> dict[str, Any]:
        """Files that are there are passed over by the first look, if the trigger says so."""
        return {"started": self.trigger.existing}

    def look(self, record: TriggerRecord) -> Proposal | None:
        """A run for files that nobody was given yet."""
        known = self._rev == record.rev
        if not known:
            self._load_handled(record)
        found = self._files.look()
        if found is not None:
            self._present = {file.path: file for file in found}
        if found is not None or not known:
            self._note_new()
        if not record.cursor["started"]:
            return self._pass_over()
        return self._ready(record) if self._open else None

    def force(self, record: TriggerRecord) -> Proposal | None:
        """Every new file, settled or not."""
        self._load_handled(record)
        self._present = {file.path: file for file in self._files.look() or ()}
        self._note_new()
        chosen = sorted(file for file, _ in self._open.values())[: self.trigger.max_files]
        return self._propose(chosen) if chosen else None

    def _load_handled(self, record: TriggerRecord) -> None:
        """Read what was handled since the last look, by this process or by another."""
        rows = self.around.ledger.handled_files(record.id, after_id=self._handled_id)
        for row_id, file in rows:
            self._handled.add(FileState(file.path, file.size, file.mtime_ns))
            self._handled_id = row_id
        self._rev = record.rev

    def _note_new(self) -> None:
        now = self.around.clock()
        new = {path: file for path, file in self._present.items() if file not in self._handled}
        self._open = {
            path: (file, self._open[path][1])
            if path in self._open and self._open[path][0] == file
            else (file, now)
            for path, file in new.items()
        }

    def _pass_over(self) -> Proposal:
        files = tuple(_handled_file(file) for file, _ in self._open.values())
        return Proposal(cursor={"started": True}, files=files)

    def _ready(self, record: TriggerRecord) -> Proposal | None:
        now = self.around.clock()
        settled = [
            file for file, since in self._open.values() if now - since >= self.trigger.settle_s
        ]
        quiet_for_s = now - max(since for _, since in self._open.values())
        if not settled or not waited(
            self.trigger, quiet_for_s=quiet_for_s, gap_s=self.gap_s(record)
        ):
            return None
        if self.skips and self.is_busy():
            return None  # Nothing is lost: the next run gets these files too.
        chosen = [file for file in sorted(settled)[: self.trigger.max_files] if self._stands(file)]
        return self._propose(chosen) if chosen else None

    def _propose(self, chosen: list[FileState]) -> Proposal:
        facts = {"files": [file.path for file in chosen], "count": len(chosen)}
        return Proposal(
            cursor={"started": True},
            firings=(self.request(set_digest(chosen), facts, skip_if_busy=False),),
            files=tuple(_handled_file(file) for file in chosen),
        )

    def _stands(self, file: FileState) -> bool:
        """Whether a file is still what it was; one that grows has not settled."""
        state = self._files.state_of(file.path)
        if state == file:
            return True
        if state is None:
            self._open.pop(file.path, None)
            self._present.pop(file.path, None)
        else:
            self._present[file.path] = state
            self._open[file.path] = (state, self.around.clock())
        return False


def _table_cursor(states: dict[str, TableState]) -> dict[str, Any]:
    return {
        "tables": {
            name: {"id": state.id, "version": state.version, "epoch": state.epoch}
            for name, state in states.items()
        }
    }


def _handled_file(file: FileState) -> HandledFile:
    return HandledFile(digest=file.digest, path=file.path, size=file.size, mtime_ns=file.mtime_ns)
