"""`ml.train_per_group`: one model for each group of a table, all of them as one."""

from __future__ import annotations

import logging
import math
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from headrace.context import current_context
from headrace.delta.arrow import write_arrow
from headrace.exceptions import (
    DataTooLargeError,
    GroupsTooLargeError,
    MlRequestError,
    WorkersLostError,
)
from headrace.ml.engine import active_session, choose_backend, slots_of
from headrace.ml.group_desk import Desk, Outcome
from headrace.ml.group_log import (
    code_of,
    fetch_pack,
    last_version,
    log_pack,
    log_training,
    run_of_models,
    signature_of,
)
from headrace.ml.group_pack import Entry, Pack, PackWriter
from headrace.ml.group_plan import MIB, Group, OnLarge, Plan, marked, plan_groups
from headrace.ml.group_results import (
    STATES,
    GroupResult,
    GroupRow,
    group_rows,
    raise_first,
    result_table,
)
from headrace.ml.group_source import Counted, Groups, Source, open_source
from headrace.ml.group_training import Training, check_on_large
from headrace.ml.layers import refuse_nested
from headrace.ml.memory import worker_memory_mib
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("headrace.ml")

_LARGEST_CODE_MIB: Final = 16


def train_per_group(  # noqa: PLR0913 - two say what, the others have a default
    table: TableRef | str | Path,
    *,
    by: Sequence[str] | str,
    fit: Callable[[pd.DataFrame], Any],
    model: str,
    features: Sequence[str] | None = None,
    target: Sequence[str] | str = (),
    filter: str | None = None,  # noqa: A002 - the word of the readers
    predict: Callable[[Any, pd.DataFrame], Any] | None = None,
    on_large: OnLarge = "fail",
    fit_batches: Callable[[Any], Any] | None = None,
    memory_mib: float | None = None,
    seed: int = 0,
    only_changed: bool = False,
    results: str | None = None,
    code_paths: Sequence[str] = (),
    backend: Literal["local", "spark", "ray"] | None = None,
) -> GroupResult:
    """Train one model for each group of a table, and register all of them as one model.

    Groups are counted first and spread over the workers by size. A group whose `fit` fails, or
    kills its worker, is a row in the table of results and not the end of the job. The registered
    model chooses by the columns `by` of each row; it is one artifact of one MLflow run, however
    many groups there are.

    Args:
        table: A `TableRef` (its version is read), a name in the lake, a path or an address.
        by: Columns whose values make a group: texts, whole numbers, booleans or dates.
        fit: Called on a worker with a group's rows (`by`, features and target); returns its model,
            which has to pickle.
        model: Name of the registered model.
        features: Columns that predictions are made from; all but `by` and target by default.
        target: Columns that `fit` needs beside them.
        filter: Rows to train on, in SQL.
        predict: Called with a group's model and its rows (the features); `model.predict(rows)` by
            default.
        on_large: What to do with groups that don't fit into a worker's memory: `fail` names them;
            `sample` trains on as many rows as fit, chosen with the seed; `iterate` hands
            `fit_batches` the rows some at a time; `alone` gives each the memory of the whole
            profile, one after the other; `leave` leaves them for a task with a larger profile,
            which trains what has no model yet with `only_changed`.
        fit_batches: Called with an iterator of frames; returns the model. For `iterate`.
        memory_mib: Memory of one worker in MiB; the profile's share by default.
        seed: Of samples.
        only_changed: Train only groups whose rows have changed since the last version of the
            model, or that have no model; the others' models are taken over. When `fit` itself has
            changed, all are trained.
        results: Name of the table of results; `MODEL_groups` by default.
        code_paths: Files that loading a model needs, as for MLflow.
        backend: `local` (processes of this machine), `spark` or `ray`; the task's engine by
            default.

    Returns:
        The registered version, the table of results, and which groups have no model.

    Raises:
        MlRequestError: Arguments don't go together, or the table has no rows.
        GroupsTooLargeError: Groups don't fit into memory.
        NestedLayersError: This is a worker or a trial already.
        WorkersLostError: Groups killed their workers again and again.
        Exception: The user's own error, when no group could be trained.
    """
    refuse_nested("ml.train_per_group")
    check_on_large(on_large, has_fit_batches=fit_batches is not None)
    chosen = choose_backend(backend, ("local", "spark", "ray"), what="ml.train_per_group")
    source = open_source(
        table, by=_names(by), features=features, target=_names(target), filter=filter
    )
    asked = _Asked(
        fit=fit,
        fit_batches=fit_batches,
        predict=predict,
        model=model,
        on_large=on_large,
        memory_mib=memory_mib,
        seed=seed,
        only_changed=only_changed,
        code_paths=code_paths,
    )
    with ExitStack() as stack:
        engine = _open_engine(chosen, source)
        stack.callback(engine.close)
        counted = engine.count()
        if not counted.groups:
            raise MlRequestError(
                problem=f"{source.ref} has no rows to train on, so there is no group.",
                found=f"filter={filter!r}",
                fix="headrace tables list",
            )
        limits = _limits(chosen, memory_mib)
        rows, saved = _train(stack, asked, source, engine, counted, limits)
    ref = write_arrow(
        result_table(rows, source.by, source.key_kinds),
        results or f"{model}_groups",
        mode="overwrite",
        schema_mode="overwrite",
    )
    found = GroupResult(
        source=source.ref,
        model=model,
        version=saved.version,
        results=ref,
        mlflow_run_id=saved.run_id,
        states=_count(rows),
        failed={row.group.name(source.by): row.error for row in rows if row.error},
    )
    log.info("%s", found)
    return found


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the user wants, beside the table."""

    fit: Callable[[Any], Any]
    fit_batches: Callable[[Any], Any] | None
    predict: Callable[[Any, Any], Any] | None
    model: str
    on_large: OnLarge
    memory_mib: float | None
    seed: int
    only_changed: bool
    code_paths: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """What workers have: how many they are, and MiB for one among others and for one alone."""

    workers: int
    budget_mib: float
    alone_mib: float


def _limits(backend: str, memory_mib: float | None) -> _Limits:
    workers = slots_of(backend)
    if memory_mib is not None:
        return _Limits(workers=workers, budget_mib=memory_mib, alone_mib=memory_mib * workers)
    return _Limits(
        workers=workers,
        budget_mib=worker_memory_mib(backend, workers),
        alone_mib=worker_memory_mib(backend, 1, alone=True),
    )


def _train(
    stack: ExitStack,
    asked: _Asked,
    source: Source,
    engine: Groups,
    counted: Counted,
    limits: _Limits,
) -> tuple[list[GroupRow], _Saved]:
    """Train what has to be trained, and register it with what is kept."""
    budget = limits.budget_mib
    marks = {
        group.key: marked(group, asked.on_large, budget_mib=budget, seed=asked.seed)
        for group in counted.groups
    }
    facts = {
        "by": list(source.by),
        "features": list(source.features),
        "scheme": engine.scheme,
        "code": code_of([asked.fit, asked.fit_batches, asked.predict, list(source.columns)]),
        "table": source.ref.model_dump(),
    }
    last = _open_last(stack, asked.model, facts) if asked.only_changed else None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-pack-")))
    pack = PackWriter(folder)
    stack.callback(pack.close)
    kept = _take_over(pack, last, marks)
    fresh = [group for group in counted.groups if group.key not in kept]
    plan = plan_groups(fresh, workers=limits.workers, budget_mib=budget)
    _guard(plan, source, asked.on_large, limits)
    desk = Desk(engine.host, pack, _packed(asked.fit, asked.fit_batches))
    stack.callback(desk.close)
    cores = max(current_context().cores, limits.workers)
    training = Training(engine, desk, asked.on_large, budget, cores, asked.seed)
    if fresh:
        training.run(fresh, plan)
    rows = group_rows(counted.groups, desk.outcomes, set(kept), training.samples)
    entries = kept | _entries(fresh, desk.outcomes, marks)
    if not entries:
        _raise_none(rows, desk.outcomes, source)
    if last is not None and entries.keys() == last.pack.entries.keys() == kept.keys():
        return rows, _Saved(last.version, None)
    pack.finish(entries, source.key_kinds, facts, asked.predict)
    return rows, _register(asked, folder, entries, source, counted, rows)


@dataclass(frozen=True)
class _Saved:
    """Where the models are: a registered version, and the run that logged it if it is new."""

    version: int
    run_id: str | None


@dataclass(frozen=True)
class _Last:
    """The last version of the model, when its groups can be taken over."""

    version: int
    pack: Pack


def _names(given: Sequence[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _open_engine(backend: str, source: Source) -> Groups:
    if backend == "local":
        from headrace.ml.group_local import LocalGroups

        return LocalGroups(source, slots_of("local"))
    if backend == "spark":
        from headrace.ml.group_spark import SparkGroups

        return SparkGroups(active_session(), source)
    from headrace.ml.group_ray import RayGroups

    return RayGroups(source)


def _open_last(stack: ExitStack, model: str, facts: dict[str, Any]) -> _Last | None:
    version = last_version(model)
    if version is None:
        return None
    pack = stack.enter_context(fetch_pack(model, version))
    for name in ("by", "features", "scheme", "code"):
        if pack.facts.get(name) != facts[name]:
            log.info("%s is not that of version %d of %s: all groups train", name, version, model)
            return None
    return _Last(version, pack)


def _take_over(
    pack: PackWriter, last: _Last | None, marks: Mapping[tuple[Any, ...], str]
) -> dict[tuple[Any, ...], Entry]:
    """Copy the models of unchanged groups."""
    kept = {}
    for key, entry in last.pack.entries.items() if last else ():
        if marks.get(key) == entry.fingerprint:
            assert last is not None  # noqa: S101 - it has entries
            offset, length = pack.add(last.pack.read(key))
            kept[key] = replace(entry, offset=offset, length=length)
    return kept


def _guard(plan: Plan, source: Source, on_large: OnLarge, limits: _Limits) -> None:
    """Name the groups that don't fit, where that ends the call.

    Raises:
        GroupsTooLargeError: They are to fail, or don't fit even alone.
    """
    limit = limits.alone_mib if on_large == "alone" else limits.budget_mib
    large = [group for group in plan.large if group.need_mib > limit]
    if large and on_large in ("fail", "alone"):
        raise GroupsTooLargeError(
            table=str(source.ref),
            groups=[
                f"{group.name(source.by)} ({group.rows:,} rows, {math.ceil(group.need_mib):,} MiB)"
                for group in large
            ],
            limit_mib=math.floor(limit),
        )
    for group in plan.large:
        log.warning(
            "group %s has %d rows and needs %d MiB of %d: %s",
            group.name(source.by), group.rows, group.need_mib, limits.budget_mib, on_large,
        )  # fmt: skip


def _packed(fit: Callable[..., Any], fit_batches: Callable[..., Any] | None) -> bytes:
    import cloudpickle

    code: bytes = cloudpickle.dumps((fit, fit_batches), protocol=pickle.HIGHEST_PROTOCOL)
    if len(code) > _LARGEST_CODE_MIB * MIB:
        raise DataTooLargeError(
            what="fit, with what it refers to,",
            size_mib=len(code) // MIB,
            limit_mib=_LARGEST_CODE_MIB,
        )
    return code


def _entries(
    fresh: Sequence[Group], outcomes: Mapping[int, Outcome], marks: Mapping[tuple[Any, ...], str]
) -> dict[tuple[Any, ...], Entry]:
    found = {}
    for group in fresh:
        outcome = outcomes.get(group.number)
        if outcome is not None and outcome.place is not None:
            offset, length = outcome.place
            found[group.key] = Entry(
                offset=offset,
                length=length,
                fingerprint=marks[group.key],
                rows=group.rows,
                module=outcome.module,
            )
    return found


def _raise_none(
    rows: Sequence[GroupRow], outcomes: Mapping[int, Outcome], source: Source
) -> NoReturn:
    """No group has a model: the user's own error says why, or that of the first group."""
    raise_first(rows, outcomes, source.by)
    first = rows[0]
    raise WorkersLostError(
        what="ml.train_per_group",
        lost=len(rows),
        reason=f"group {first.group.name(source.by)}: {first.error}",
    )


def _register(
    asked: _Asked,
    folder: Path,
    entries: Mapping[tuple[Any, ...], Entry],
    source: Source,
    counted: Counted,
    rows: Sequence[GroupRow],
) -> _Saved:
    with run_of_models(asked.model) as run:
        log_training(asked.model, _count(rows), source)
        version = log_pack(
            folder,
            name=asked.model,
            signature=signature_of(source, counted.nulls),
            modules=sorted({entry.module for entry in entries.values()}),
            code_paths=asked.code_paths,
            tags={"headrace.table": str(source.ref), "headrace.groups": str(len(entries))},
        )
        return _Saved(version, str(run.info.run_id))


def _count(rows: Sequence[GroupRow]) -> dict[str, int]:
    return {state: sum(row.state == state for row in rows) for state in STATES}
