"""Triggers: the cursor moves in the transaction that creates the run, so each thing has one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.base import RUN
from headrace.ledger.firing_records import (
    FiringRecord,
    FiringRequest,
    HandledFile,
    TriggerRecord,
)
from headrace.ledger.records import (
    ACTIVE,
    RepairRequest,
    RunRequest,
    new_run_id,
)
from headrace.ledger.rows import utc_now
from headrace.ledger.runs import RunStore
from headrace.ledger.trigger_queries import firing_record, short_key

TRIGGER, FIRING, FILE = schema.trigger, schema.firing, schema.trigger_file

_CHUNK = 500


class TriggerStore(RunStore):
    """The part of the ledger that knows triggers."""

    def register_trigger(
        self, pipeline: str, name: str, *, kind: str, rule: str, cursor: dict[str, Any]
    ) -> TriggerRecord:
        """The trigger of this name; it is made when there is none.

        Args:
            pipeline: Name of its pipeline.
            name: Its name.
            kind: Its kind.
            rule: Its rule; a new one replaces the old.
            cursor: Where a new one starts.
        """

        def work(connection: sa.Connection) -> TriggerRecord:
            self._lock_name(connection, f"trigger {pipeline}/{name}")
            row = _trigger(connection, pipeline, name)
            if row is None:
                connection.execute(
                    sa.insert(TRIGGER).values(
                        pipeline=pipeline,
                        name=name,
                        kind=kind,
                        rule=rule,
                        cursor=cursor,
                        rev=0,
                        paused=False,
                        paused_in_prefect=False,
                        created_at=utc_now(),
                    )
                )
            elif (row.kind, row.rule) != (kind, rule):
                _set(connection, row.id, kind=kind, rule=rule)
            return _record(connection.execute(_one(pipeline, name)).one())

        known = self.find_trigger(pipeline, name)
        if known is not None and (known.kind, known.rule) == (kind, rule):
            return known
        return self.database.write(work)

    def find_trigger(self, pipeline: str, name: str) -> TriggerRecord | None:
        """The trigger of this name, or None when it was never served."""
        row = self.database.read(lambda c: _trigger(c, pipeline, name))
        return _record(row) if row is not None else None

    def list_triggers(self, pipelines: Iterable[str] | None = None) -> list[TriggerRecord]:
        """Triggers that were ever served, by pipeline and name."""
        query = sa.select(TRIGGER).order_by(TRIGGER.c.pipeline, TRIGGER.c.name)
        if pipelines is not None:
            query = query.where(TRIGGER.c.pipeline.in_(list(pipelines)))
        return self.database.read(lambda c: [_record(row) for row in c.execute(query)])

    def pause_trigger(
        self, trigger: TriggerRecord, *, paused: bool, user: str, now: str | None = None
    ) -> None:
        """Pause a trigger, or let it go on; the times of its pause are passed over.

        Args:
            trigger: The trigger.
            paused: What it shall be.
            user: Who says so.
            now: The time at which a schedule goes on; the present by default.
        """
        values = {"paused": paused, "paused_by": user if paused else None}
        if not paused:
            values |= _resumed(trigger, now or utc_now().isoformat())
        self.database.write(lambda c: _set(c, trigger.id, **values))

    def note_pause_in_prefect(self, trigger: TriggerRecord, *, paused: bool, now: str) -> None:
        """Note that a trigger was paused on Prefect's page, or goes on; see `pause_trigger`."""
        values = {"paused_in_prefect": paused} | ({} if paused else _resumed(trigger, now))
        self.database.write(lambda c: _set(c, trigger.id, **values))

    def note_problem(self, trigger_id: int, problem: str | None) -> None:
        """Note why a trigger can't be looked at, or that it can again."""
        self.database.write(lambda c: _set(c, trigger_id, problem=problem))

    def fire(
        self,
        trigger: TriggerRecord,
        *,
        cursor: dict[str, Any],
        firings: Sequence[FiringRequest] = (),
        files: Sequence[HandledFile] = (),
        max_concurrent: int = 1,
        by_hand: bool = False,
    ) -> list[FiringRecord] | None:
        """Move a trigger's cursor and create the runs, all of it or nothing.

        Args:
            trigger: The trigger as it was when this was decided.
            cursor: Where its cursor goes.
            firings: What was decided. What has had its run already is left out.
            files: Files that are handled with it.
            max_concurrent: For those that are skipped while the pipeline is busy.
            by_hand: Whether a person does it, who may also while the trigger is paused.

        Returns:
            What was recorded, or None when somebody else moved the cursor in between (or the
            trigger was paused): look again and decide anew.
        """
        # Made here, so that a commit whose answer got lost does not make other runs.
        run_ids = [new_run_id(utc_now()) for _ in firings]

        def work(connection: sa.Connection) -> list[FiringRecord] | None:
            row = connection.execute(
                sa.select(TRIGGER).where(TRIGGER.c.id == trigger.id).with_for_update()
            ).one()
            is_paused = row.paused or row.paused_in_prefect
            if row.rev != trigger.rev or (is_paused and not by_hand):
                return None
            self._lock_name(connection, f"pipeline {trigger.pipeline}")
            made = []
            for request, run_id in zip(firings, run_ids, strict=True):
                record = self._record_firing(connection, trigger, request, run_id, max_concurrent)
                if record is not None:
                    made.append(record)
            started = any(record.run_id for record in made)
            _set(
                connection,
                trigger.id,
                cursor=cursor,
                rev=trigger.rev + 1,
                **({"fired_at": utc_now()} if started else {}),
            )
            _insert_files(connection, trigger.id, files, made[-1].id if made else None)
            return made

        return self.database.write(work)

    def handled_files(self, trigger_id: int, *, after_id: int = 0) -> list[tuple[int, HandledFile]]:
        """Files that runs of a trigger were given, with their ids, oldest first."""
        query = (
            sa.select(FILE).where(FILE.c.trigger_id == trigger_id, FILE.c.id > after_id)
        ).order_by(FILE.c.id)

        def work(connection: sa.Connection) -> list[tuple[int, HandledFile]]:
            return [
                (
                    row.id,
                    HandledFile.model_construct(
                        digest=row.digest, path=row.path, size=row.size, mtime_ns=row.mtime_ns
                    ),
                )
                for row in connection.execute(query)
            ]

        return self.database.read(work)

    def forget_files(self, trigger_id: int, ids: Sequence[int]) -> None:
        """Drop files that are gone from their folder."""
        for start in range(0, len(ids), _CHUNK):
            gone = FILE.c.id.in_(list(ids[start : start + _CHUNK]))
            removal = sa.delete(FILE).where(FILE.c.trigger_id == trigger_id, gone)
            self.database.write(partial(_execute, removal))

    def _record_firing(
        self,
        connection: sa.Connection,
        trigger: TriggerRecord,
        request: FiringRequest,
        run_id: str,
        max_concurrent: int,
    ) -> FiringRecord | None:
        key = short_key(request.key)
        if _decided(connection, trigger, key):
            return None
        decision, reason, made = request.decision, request.reason, None
        if request.run is not None:
            active = _count_active(connection, trigger.pipeline)
            if request.skip_if_busy and active >= max_concurrent:
                decision, reason = "skipped", f"{active} of {max_concurrent} runs were at work"
            else:
                made = self._make_run(connection, request.run, f"{trigger.name}:{key}", run_id)
        row = connection.execute(
            sa.insert(FIRING)
            .values(
                pipeline=trigger.pipeline,
                trigger=trigger.name,
                key=key,
                decision=decision,
                reason=reason,
                facts=request.facts,
                logical_time=request.logical_time,
                created_at=utc_now(),
                run_id=made,
            )
            .returning(FIRING.c.id)
        ).one()
        return firing_record(
            connection.execute(sa.select(FIRING).where(FIRING.c.id == row.id)).one()
        )

    def _make_run(self, connection: sa.Connection, run: RunRequest, key: str, run_id: str) -> str:
        run = run.model_copy(update={"trigger_key": short_key(key)})
        self._insert_run(connection, run_id, run, claim=False)
        repair = RepairRequest(profiles=run.profiles, user=run.user, code=run.code)
        self._insert_repair(connection, run_id, 0, repair, {"planned": []})
        return run_id


def _trigger(connection: sa.Connection, pipeline: str, name: str) -> sa.Row[Any] | None:
    return connection.execute(_one(pipeline, name)).one_or_none()


def _one(pipeline: str, name: str) -> sa.Select[Any]:
    return sa.select(TRIGGER).where(TRIGGER.c.pipeline == pipeline, TRIGGER.c.name == name)


def _resumed(trigger: TriggerRecord, now: str) -> dict[str, Any]:
    """Columns of a schedule that goes on now."""
    if "at" not in trigger.cursor:
        return {}
    return {"cursor": {"at": now}, "rev": TRIGGER.c.rev + 1}


def _execute(statement: sa.Delete, connection: sa.Connection) -> None:
    connection.execute(statement)


def _set(connection: sa.Connection, trigger_id: int, **values: Any) -> None:
    connection.execute(sa.update(TRIGGER).where(TRIGGER.c.id == trigger_id).values(**values))


def _record(row: sa.Row[Any]) -> TriggerRecord:
    return TriggerRecord(**row._mapping)  # noqa: SLF001


def _decided(connection: sa.Connection, trigger: TriggerRecord, key: str) -> bool:
    query = sa.select(FIRING.c.id).where(
        FIRING.c.pipeline == trigger.pipeline,
        FIRING.c.trigger == trigger.name,
        FIRING.c.key == key,
    )
    return connection.execute(query).scalar() is not None


def _count_active(connection: sa.Connection, pipeline: str) -> int:
    query = sa.select(sa.func.count()).where(
        RUN.c.state.in_(sorted(ACTIVE)), RUN.c.pipeline == pipeline
    )
    return int(connection.execute(query).scalar_one())


def _insert_files(
    connection: sa.Connection,
    trigger_id: int,
    files: Sequence[HandledFile],
    firing_id: int | None,
) -> None:
    rows = [
        {"trigger_id": trigger_id, "firing_id": firing_id, **file.model_dump()} for file in files
    ]
    for start in range(0, len(rows), _CHUNK):
        connection.execute(sa.insert(FILE), rows[start : start + _CHUNK])
