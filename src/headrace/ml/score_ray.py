"""Scoring on Ray: `map_batches` with actors that have loaded the model, kept for both tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.bridge.read import from_delta
from headrace.bridge.write import to_delta
from headrace.engines.own_errors import raising_own_error
from headrace.exceptions import BadRowsError
from headrace.ml.score_work import ERROR, ROW, Scoring, load_predict, score_batch
from headrace.tables import TableRef

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.ml.scoring import Request


def score_on_ray(request: Request, *, slots: int) -> tuple[TableRef, TableRef | None, int]:
    """Score and write; the tables' versions, and the number of bad rows."""
    import ray.data
    from ray.data.expressions import col

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
    )
    with raising_own_error():
        kept = scored.materialize()
        bad = kept.filter(expr=col(ERROR).is_not_null())
        count = bad.count()
    if count > request.max_bad_rows:
        first = bad.take(1)[0]
        raise BadRowsError(
            error=first[ERROR],
            row=first[ROW],
            bad=count,
            allowed=request.max_bad_rows,
            table=str(request.source),
        )
    merge_on = request.key if request.mode == "merge" else None
    bad_table = None
    if count:
        bad_table = to_delta(
            bad.select_columns(request.bad_columns),
            request.bad_table,
            mode=request.mode,
            merge_on=merge_on,
            key=request.write_key_of("bad"),
        )
    table = to_delta(
        kept.filter(expr=col(ERROR).is_null()).select_columns(request.good_columns),
        request.table,
        mode=request.mode,
        merge_on=merge_on,
        key=request.write_key_of("predictions"),
    )
    return table, bad_table, count


class _Scorer:
    """A worker that has loaded the model."""

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring
        self._predict = load_predict(scoring)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return score_batch(self._scoring, self._predict, batch)
