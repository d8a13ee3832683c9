"""Scoring in one process, for tables that need no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.delta.arrow import read_arrow, write_arrow
from headrace.exceptions import BadRowsError
from headrace.ml.score_work import ERROR, ROW, load_predict, score_batch
from headrace.tables import TableRef

if TYPE_CHECKING:
    from headrace.ml.scoring import Request


def score_here(request: Request) -> tuple[TableRef, TableRef | None, int]:
    """Score and write; the tables' versions, and the number of bad rows."""
    rows = read_arrow(request.source, columns=request.columns, filter=request.filter)
    predict = load_predict(request.scoring)
    step = request.batch_rows
    # A batch without rows, so that a table without rows has columns too.
    batches = [rows.slice(at, step) for at in range(0, rows.num_rows, step)] or [rows]
    scored = pa.concat_tables(score_batch(request.scoring, predict, batch) for batch in batches)
    is_bad = pc.is_valid(scored[ERROR])
    bad = scored.filter(is_bad)
    if bad.num_rows > request.max_bad_rows:
        raise BadRowsError(
            error=bad[ERROR][0].as_py(),
            row=bad[ROW][0].as_py(),
            bad=bad.num_rows,
            allowed=request.max_bad_rows,
            table=str(request.source),
        )
    bad_table = None
    if bad.num_rows:
        bad_table = _write(bad.select(request.bad_columns), request.bad_table, "bad", request)
    good = scored.filter(pc.invert(is_bad)).select(request.good_columns)
    return _write(good, request.table, "predictions", request), bad_table, bad.num_rows


def _write(rows: pa.Table, table: str, what: str, request: Request) -> TableRef:
    return write_arrow(
        rows,
        table,
        mode=request.mode,
        merge_on=request.key if request.mode == "merge" else (),
        key=request.write_key_of(what),
    )
