"""`ml.score`: a registered model on the rows of a table, to another table, once."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from headrace.context import current_context, inside_task, use_context
from headrace.delta.binding import bind
from headrace.delta.pinning import pin
from headrace.delta.reading import plain_spec, resolve_columns
from headrace.delta.sql_filters import parse_filter
from headrace.exceptions import MlRequestError
from headrace.ml.engine import active_session, choose_backend, slots_of
from headrace.ml.group_results import GroupResult
from headrace.ml.layers import refuse_nested
from headrace.ml.model_facts import RETURNS, ModelFacts, check_table, load_facts
from headrace.ml.score_work import ERROR, ROW, Scoring
from headrace.tables import TableRef

if TYPE_CHECKING:
    from headrace.delta.snapshot import Snapshot

log = logging.getLogger("headrace.ml")

Mode = Literal["overwrite", "append", "merge"]

_SECRETS: Final = ("MLFLOW_RUN_ID",)


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """What came of `ml.score`.

    Attributes:
        table: The version with the predictions.
        bad_table: The version with the rows that could not be scored, or None.
        bad_rows: How many these are.
        model: The model, with its version.
        source: The version that was scored.
    """

    table: TableRef
    bad_table: TableRef | None
    bad_rows: int
    model: str
    source: TableRef

    def __str__(self) -> str:
        bad = f", {self.bad_rows} rows could not be scored" if self.bad_rows else ""
        return f"{self.table} from {self.source} by {self.model}{bad}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is scored, decided on the driver.

    Attributes:
        snapshot: The version that is read.
        source: Its reference.
        columns: Columns that are read.
        filter: Rows that are read, in SQL, or None for all.
        scoring: What workers do.
        table: Where predictions go.
        bad_table: Where rows with errors go.
        mode: How predictions are written.
        key: Columns that tell rows apart.
        write_key: Identity of the writes; None for the task's.
        batch_rows: Rows of a batch.
        max_bad_rows: More are an error.
    """

    snapshot: Snapshot
    source: TableRef
    columns: tuple[str, ...]
    filter: str | None
    scoring: Scoring
    table: str
    bad_table: str
    mode: Mode
    key: tuple[str, ...]
    write_key: tuple[str, ...] | None
    batch_rows: int
    max_bad_rows: int

    @property
    def good_columns(self) -> list[str]:
        """Columns of the table of predictions."""
        return [*self.scoring.kept, *(name for name, _ in self.scoring.outputs)]

    @property
    def bad_columns(self) -> list[str]:
        """Columns of the table of bad rows."""
        return [*self.scoring.kept, ERROR, ROW]

    def write_key_of(self, what: str) -> tuple[str, ...] | None:
        """Identity of one of the two writes."""
        return (*self.write_key, what) if self.write_key else self.write_key


def score(  # noqa: PLR0913 - three say what, the others have a default
    table: TableRef | str | Path,
    model: str | GroupResult,
    *,
    to: str,
    key: Sequence[str] | str,
    keep: Sequence[str] = (),
    filter: str | None = None,  # noqa: A002 - the word of the readers
    prediction: str = "prediction",
    returns: str | None = None,
    mode: Mode = "overwrite",
    bad_rows: str | None = None,
    max_bad_rows: int = 1_000,
    batch_rows: int = 10_000,
    write_key: tuple[str, ...] | None = None,
    backend: Literal["local", "spark", "ray"] | None = None,
) -> ScoreResult:
    """Predict every row of a table with a model from MLflow and write the predictions once.

    The model's version is fixed and its signature compared with the table before the first row is
    read. Each worker process loads the model once. Rows that the model fails on go to a side table
    with its error; the others are written. Both commits name the model's version and the table's.

    Args:
        table: A `TableRef` (its version is read), a name in the lake, a path or an address.
        model: `models:/NAME/VERSION`, `models:/NAME@ALIAS`, a registered name (its newest
            version), `runs:/...`, or what `ml.train_per_group` returned.
        to: Name of the table of predictions.
        key: Columns that tell rows apart; they are in both tables, and a merge goes by them.
        keep: Further columns of the rows that are handed on.
        filter: Rows to score, in SQL.
        prediction: Name of the column with the prediction, where the signature names none.
        returns: Its type where the signature has none: `double` (then the default), `float`,
            `long`, `integer`, `string`, `boolean` or `datetime`.
        mode: `overwrite`, `append`, or `merge` on `key`.
        bad_rows: Name of the side table; `TO_bad` by default. It is made when there is such a row.
        max_bad_rows: More rows than this that can't be scored are an error, and nothing is written.
        batch_rows: Rows that a model gets at once, at most.
        write_key: Identity of the write; the task's when left out.
        backend: `local` (this process), `spark` or `ray`; the task's engine by default.

    Returns:
        The versions of both tables, and what they were made from.

    Raises:
        MlRequestError: There is no such model, it has no signature, or arguments don't go together.
        ModelSignatureError: The table lacks what the model needs.
        BadRowsError: Too many rows can't be scored.
        NestedLayersError: This is a worker or a trial already.
    """
    refuse_nested("ml.score")
    chosen = choose_backend(backend, ("local", "spark", "ray"), what="ml.score")
    facts = load_facts(model.uri if isinstance(model, GroupResult) else model)
    snapshot, source = pin(table)
    inputs = check_table(facts, snapshot.schema, table=str(source))
    spec = plain_spec(snapshot)
    keys = resolve_columns(spec, [key] if isinstance(key, str) else list(key))
    kept = tuple(dict.fromkeys([*keys, *resolve_columns(spec, keep)]))
    outputs = _outputs(facts, prediction, returns)
    _check(kept, keys, outputs, mode, max_bad_rows, batch_rows)
    if filter is not None:
        bind(parse_filter(filter), snapshot.schema, table=snapshot.uri, text=filter)
    context = current_context()
    request = Request(
        snapshot=snapshot,
        source=source,
        columns=tuple(dict.fromkeys([*kept, *inputs])),
        filter=filter,
        scoring=Scoring(
            uri=facts.uri,
            inputs=tuple((name, kind) for name, kind in facts.inputs if name in inputs),
            kept=kept,
            outputs=outputs,
            max_bad_rows=max_bad_rows,
            # One process may use all cores; where others score beside it, each has one.
            threads=max(1, context.cores) if chosen == "local" else 1,
            variables=_variables(),
        ),
        table=to,
        bad_table=bad_rows or f"{to}_bad",
        mode=mode,
        key=keys,
        # Outside of a task there is nothing that could be tried again.
        write_key=write_key if write_key is not None or inside_task() else (),
        batch_rows=batch_rows,
        max_bad_rows=max_bad_rows,
    )
    with ExitStack() as stack:
        if not inside_task():
            stack.enter_context(use_context(context))
        current_context().record_model(facts.uri)
        found = _run(chosen, request)
    log.info("%s", found)
    return found


def _run(backend: str, request: Request) -> ScoreResult:
    if backend == "local":
        from headrace.ml.score_local import score_here

        table, bad_table, bad = score_here(request)
    elif backend == "spark":
        from headrace.ml.score_spark import score_on_spark

        table, bad_table, bad = score_on_spark(active_session(), request)
    else:
        from headrace.ml.score_ray import score_on_ray

        table, bad_table, bad = score_on_ray(request, slots=slots_of("ray"))
    return ScoreResult(
        table=table,
        bad_table=bad_table,
        bad_rows=bad,
        model=request.scoring.uri,
        source=request.source,
    )


def _outputs(
    facts: ModelFacts, prediction: str, returns: str | None
) -> tuple[tuple[str, str], ...]:
    """Columns of predictions: those of the signature, or one."""
    if returns is not None and returns not in RETURNS:
        raise MlRequestError(
            problem=f"returns={returns!r} is no type of a prediction.",
            found=f"Known: {', '.join(RETURNS)}.",
            fix='returns="double"',
        )
    if len(facts.outputs) > 1 and returns is None:
        return facts.outputs
    kind = returns or (facts.outputs[0][1] if facts.outputs else "double")
    return ((prediction, kind),)


def _check(
    kept: Sequence[str],
    key: Sequence[str],
    outputs: Sequence[tuple[str, str]],
    mode: str,
    max_bad_rows: int,
    batch_rows: int,
) -> None:
    problem, fix = "", ""
    both = [name for name, _ in outputs if name in kept]
    if not key:
        problem, fix = "ml.score needs the columns that tell rows apart.", 'key=["flight_id"]'
    elif both:
        problem = f"Column {both[0]!r} would be there twice, from the table and from the model."
        fix = 'prediction="predicted"'
    elif mode not in ("overwrite", "append", "merge"):
        problem, fix = f"mode={mode!r} does not exist.", 'mode="append"'
    elif max_bad_rows < 0 or batch_rows < 1:
        problem = f"max_bad_rows={max_bad_rows} and batch_rows={batch_rows} can't be."
        fix = "max_bad_rows=0, batch_rows=10_000"
    if problem:
        raise MlRequestError(problem=problem, found=f"key={list(key)}, kept={list(kept)}", fix=fix)


def _variables() -> dict[str, str]:
    """What lets a worker find the model."""
    import mlflow

    found = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}
    for name in _SECRETS:
        found.pop(name, None)
    return {**found, "MLFLOW_TRACKING_URI": mlflow.get_tracking_uri()}
