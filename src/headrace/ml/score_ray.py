"""Scoring on Ray: `map_batches` with actors that have loaded the model, kept for both tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.bridge.read import from_delta
from headrace.bridge.write import to_delta
from headrace.delta.types import arrow_schema
from headrace.engines.own_errors import own_error
from headrace.exceptions import BadRowsError, WorkersLostError
from headrace.ml.score_work import ERROR, ROW, Scoring, load_predict, score_batch
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset

    from headrace.ml.scoring import Request

_RETRIES: Final = 2
_LOST: Final = {"RayActorError", "WorkerCrashedError", "OutOfMemoryError"}


def score_on_ray(request: Request, *, slots: int) -> tuple[TableRef, TableRef | None, int]:
    """Score and write; the tables' versions, and the number of bad rows."""
    import ray.data

    rows = from_delta(request.source, columns=list(request.columns), filter=request.filter)
    scored = rows.map_batches(
        _Scorer,
        fn_constructor_args=(request.scoring,),
        batch_format="pyarrow",
        batch_size=request.batch_rows,
        # Half of the cores score, the others read for them.
        compute=ray.data.ActorPoolStrategy(size=max(1, slots // 2)),
        num_cpus=1,
        zero_copy_batch=True,
        # Left alone, Ray starts a worker again for ever, also where a row kills it each time.
        max_restarts=_RETRIES,
        max_task_retries=_RETRIES,
    )
    good, bad = _split(_evaluate(scored), request)
    count = sum(rows for _, rows, _ in bad)
    if count > request.max_bad_rows:
        error, row = next(first for _, _, first in bad if first is not None)
        raise BadRowsError(
            error=error,
            row=row,
            bad=count,
            allowed=request.max_bad_rows,
            table=str(request.source),
        )
    bad_table = None
    if count:
        bad_table = _write([ref for ref, _, _ in bad], request.bad_table, "bad", request)
    return _write(good, request.table, "predictions", request), bad_table, count


def _write(tables: list[Any], name: str, what: str, request: Request) -> TableRef:
    import ray.data

    return to_delta(
        ray.data.from_arrow_refs(tables),
        name,
        mode=request.mode,
        merge_on=request.key if request.mode == "merge" else None,
        key=request.write_key_of(what),
    )


def _split(kept: Dataset, request: Request) -> tuple[list[Any], list[tuple[Any, int, Any]]]:
    """References to the good rows of each block, and to the bad ones with their number and first.

    Not by `filter` and `select_columns`: those leave a block without rows all its columns.
    """
    import ray

    task = ray.remote(num_returns=3)(_split_block)
    # A block without rows has not been seen by a worker, so it lacks the new columns.
    schema = arrow_schema(request.snapshot.schema)
    nothing = schema.empty_table().select(list(request.columns))
    empty = score_batch(request.scoring, lambda frame: frame, nothing)
    columns = (request.good_columns, request.bad_columns)
    blocks = kept.to_arrow_refs() or [ray.put(empty)]
    parts = [task.remote(table, empty, *columns) for table in blocks]
    counts = ray.get([facts for _, _, facts in parts])
    bad = [(rows, *facts) for (_, rows, _), facts in zip(parts, counts, strict=True)]
    return [rows for rows, _, _ in parts], bad


def _split_block(
    table: pa.Table, empty: pa.Table, good: list[str], bad: list[str]
) -> tuple[pa.Table, pa.Table, tuple[int, tuple[str, str] | None]]:
    import pyarrow.compute as pc

    table = table if table.num_rows else empty
    is_bad = pc.is_valid(table[ERROR])
    rows = table.filter(is_bad)
    first = (rows[ERROR][0].as_py(), rows[ROW][0].as_py()) if rows.num_rows else None
    facts = (rows.num_rows, first)
    return table.filter(pc.invert(is_bad)).select(good), rows.select(bad), facts


def _evaluate(scored: Dataset) -> Dataset:
    """Score all rows, once; they stay in the object store.

    Raises:
        WorkersLostError: Workers are lost again and again.
    """
    try:
        return scored.materialize()
    except Exception as error:
        told = own_error(error)
        names = {kind.__name__ for kind in type(told).__mro__}
        if names & _LOST:
            reason = "a Ray worker was killed or crashed"
            raise WorkersLostError(what="ml.score", lost=_RETRIES + 1, reason=reason) from error
        if told is error:
            raise
        raise told from error


class _Scorer:
    """A worker that has loaded the model."""

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring
        self._predict = load_predict(scoring)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return score_batch(self._scoring, self._predict, batch)
