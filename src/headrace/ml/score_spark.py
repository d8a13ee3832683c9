"""Scoring on Spark: `mapInArrow`, whose batches a model sees as pandas; evaluated once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from headrace.delta.spark import read_table, write_table
from headrace.delta.spark_layout import quote
from headrace.exceptions import BadRowsError, WorkersLostError
from headrace.ml.model_facts import RETURNS
from headrace.ml.score_work import ERROR, ROW, Scoring, load_predict, score_batch
from headrace.tables import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.ml.scoring import Request

log = logging.getLogger("headrace.ml")

_ATTEMPTS: Final = 2
_LOST: Final = ("exited unexpectedly", "Python worker crashed")


def score_on_spark(spark: SparkSession, request: Request) -> tuple[TableRef, TableRef | None, int]:
    """Score and write; the tables' versions, and the number of bad rows."""
    frame = read_table(request.source, spark=spark)
    if request.filter is not None:
        frame = frame.where(request.filter)
    frame = frame.select(*(quote(name) for name in request.columns))
    # Kept while two tables are written from it: no row is scored twice.
    function = _function(request.scoring, request.batch_rows)
    scored = frame.mapInArrow(function, _schema(frame, request)).persist()
    try:
        bad = scored.where(f"{ERROR} IS NOT NULL")
        count = _evaluate(bad)
        if count > request.max_bad_rows:
            first = bad.select(ERROR, ROW).first()
            raise BadRowsError(
                error=first[0],
                row=first[1],
                bad=count,
                allowed=request.max_bad_rows,
                table=str(request.source),
            )
        bad_table = _write_bad(bad, request) if count else None
        good = scored.where(f"{ERROR} IS NULL").select(*map(quote, request.good_columns))
        table = write_table(
            good,
            request.table,
            mode=request.mode,
            merge_on=request.key if request.mode == "merge" else (),
            key=request.write_key_of("predictions"),
        )
    finally:
        scored.unpersist()
    return table, bad_table, count


def _evaluate(bad: DataFrame) -> int:
    """Score all rows and count the bad ones; once more when a Python worker was lost.

    A cluster tries a task again by itself, a local session does not. What was scored before is
    kept.

    Raises:
        WorkersLostError: Workers are lost again and again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return int(bad.count())
        except Exception as error:
            text = str(error)
            if not any(word in text for word in _LOST):
                raise
            log.warning("a worker was lost while it scored rows (attempt %d)", attempt)
            if attempt == _ATTEMPTS:
                reason = "a Python worker was killed or crashed"
                raise WorkersLostError(what="ml.score", lost=attempt, reason=reason) from error
    raise AssertionError


def _write_bad(bad: DataFrame, request: Request) -> TableRef:
    return write_table(
        bad.select(*map(quote, request.bad_columns)),
        request.bad_table,
        mode=request.mode,
        merge_on=request.key if request.mode == "merge" else (),
        key=request.write_key_of("bad"),
    )


def _schema(frame: DataFrame, request: Request) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

    kept = [frame.schema[name] for name in request.scoring.kept]
    fields = [StructField(child.name, child.dataType) for child in kept]
    for name, kind in request.scoring.outputs:
        fields.append(StructField(name, _parse_datatype_string(RETURNS[kind])))
    return StructType([*fields, *(StructField(name, StringType()) for name in (ERROR, ROW))])


def _function(scoring: Scoring, batch_rows: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        predict = load_predict(scoring)
        for batch in batches:
            for at in range(0, batch.num_rows, batch_rows):
                piece = pa.Table.from_batches([batch.slice(at, batch_rows)])
                yield from score_batch(scoring, predict, piece).combine_chunks().to_batches()

    return run
