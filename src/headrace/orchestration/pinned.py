"""Whether the table versions that a repair reuses can still be read, before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from headrace.delta.presence import find_missing_file
from headrace.exceptions import (
    LogIncompleteError,
    ReusedTableGoneError,
    TableNotFoundError,
    VersionNotFoundError,
)
from headrace.ledger.records import AttemptRecord, split_name
from headrace.ledger.repair import RepairPlan
from headrace.ledger.store import Ledger
from headrace.orchestration.project import Project
from headrace.tables import TableRef

log = logging.getLogger("headrace.run")


def check_reused_tables(project: Project, ledger: Ledger, run_id: str, plan: RepairPlan) -> None:
    """Refuse a repair whose tasks would read a version that VACUUM has taken away.

    Looked at are the tables that a reused task made and a task that runs again was handed. A task
    that got to its reads before is taken to read the same tables now.

    Raises:
        ReusedTableGoneError: A file of such a version is gone, or its log is.
    """
    latest = ledger.latest_attempts(run_id)
    seen: set[tuple[str, int]] = set()
    for reader, maker, ref in _handed_on(plan, latest):
        if (ref.uri, ref.version) in seen:
            continue
        seen.add((ref.uri, ref.version))
        problem = _what_is_gone(project, ref)
        if problem is not None:
            raise ReusedTableGoneError(
                run_id=run_id,
                task=reader,
                maker=split_name(maker)[0],
                table=ref.uri,
                version=ref.version,
                problem=problem,
            )


def _handed_on(
    plan: RepairPlan, latest: Mapping[str, AttemptRecord]
) -> Iterator[tuple[str, str, TableRef]]:
    """Each task that runs again, a reused one before it, and a table of that."""
    reused = set(plan.names("reuse"))
    for name in plan.names("run"):
        attempt = latest.get(name)
        if attempt is None:
            continue
        read = {use.ref.uri for use in attempt.inputs}
        for maker in _nodes(attempt.depends_on, reused):
            for use in latest[maker].outputs:
                if not read or use.ref.uri in read:
                    yield name, maker, use.ref


def _nodes(depends_on: tuple[str, ...], reused: set[str]) -> Iterator[str]:
    """The reused tasks and items among the dependencies; a task's name stands for all its items."""
    for dependency in depends_on:
        if dependency in reused:
            yield dependency
        else:
            yield from sorted(name for name in reused if split_name(name)[0] == dependency)


def _what_is_gone(project: Project, ref: TableRef) -> str | None:
    try:
        missing = find_missing_file(ref.uri, ref.version, storage=project.environment.storage)
    except (TableNotFoundError, VersionNotFoundError, LogIncompleteError) as error:
        return str(error).splitlines()[0].rstrip(".")
    except Exception as error:  # noqa: BLE001 - the task itself will say what it can't read
        log.debug("%s could not be looked at before the repair: %s", ref, error)
        return None
    return f"the file {missing} is gone" if missing else None
