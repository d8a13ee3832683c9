"""What a worker does with a batch: it loads the model once, predicts, and finds the bad rows."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.ml.group_rows import to_pandas
from headrace.ml.layers import inside
from headrace.ml.threads import thread_caps

if TYPE_CHECKING:
    import pandas as pd

ERROR: Final = "headrace_error"
ROW: Final = "headrace_row"

_NUMPY: Final = {
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
}
_LONGEST_ERROR: Final = 2_000

ARROW: Final = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "datetime": pa.timestamp("us", tz="UTC"),
}

Predict = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """All that a worker needs to know.

    Attributes:
        uri: The model, with its version.
        inputs: Its columns that the table has, with MLflow types.
        kept: Columns that are handed on.
        outputs: Columns that are added, with MLflow types.
        max_bad_rows: Above it a worker does not look for more in a batch.
        threads: Threads that the model may use.
        variables: Where MLflow is.
    """

    uri: str
    inputs: tuple[tuple[str, str], ...]
    kept: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    max_bad_rows: int
    threads: int
    variables: Mapping[str, str] = field(repr=False)


_loaded: dict[str, Predict] = {}


def load_predict(scoring: Scoring) -> Predict:
    """The model's `predict`; a process that has loaded it keeps it."""
    if scoring.uri not in _loaded:
        import mlflow

        before = dict(os.environ)
        os.environ.update(scoring.variables)
        mlflow.set_tracking_uri(scoring.variables["MLFLOW_TRACKING_URI"])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = mlflow.pyfunc.load_model(scoring.uri)
        finally:
            # Worker processes are used again by others.
            os.environ.clear()
            os.environ.update(before)
        _loaded.clear()
        _loaded[scoring.uri] = model.predict
    return _loaded[scoring.uri]


def score_batch(scoring: Scoring, predict: Predict, table: pa.Table) -> pa.Table:
    """Score a batch.

    What is handed on stays in Arrow: pandas would round large whole numbers beside a null.

    Args:
        scoring: What to do.
        predict: The model's function.
        table: Rows with the model's columns and those that are kept.

    Returns:
        The kept columns, the predictions, and for a row that can't be scored the error and the
        row as JSON.
    """
    frame = to_pandas(table.select([name for name, _ in scoring.inputs]))
    parts = _score(scoring, predict, frame)
    columns = {name: table[name] for name in scoring.kept}
    for place, (name, kind) in enumerate(scoring.outputs):
        chunks = [
            pa.nulls(part.rows, ARROW[kind]) if part.values is None else part.values[place]
            for part in parts
        ]
        columns[name] = pa.chunked_array(chunks, ARROW[kind])
    errors = [part.error for part in parts for _ in range(part.rows)]
    rows = [
        None if error is None else json.dumps(table.slice(place, 1).to_pylist()[0], default=str)
        for place, error in enumerate(errors)
    ]
    columns[ERROR] = pa.chunked_array([pa.array(errors, pa.string())])
    columns[ROW] = pa.chunked_array([pa.array(rows, pa.string())])
    return pa.table(columns)


@dataclass(frozen=True)
class _Part:
    """A stretch of rows with their predictions, one array per output, or with an error."""

    rows: int
    values: list[pa.Array] | None
    error: str | None


def _score(scoring: Scoring, predict: Predict, frame: pd.DataFrame) -> list[_Part]:
    parts: list[_Part] = []
    bad = done = 0
    with thread_caps(scoring.threads), inside("scoring"):
        for part in _pieces(scoring, predict, frame):
            parts.append(part)
            done += part.rows
            bad += part.rows if part.error else 0
            if bad > scoring.max_bad_rows and done < len(frame):
                # The job fails anyway: no need to find all of them, one by one.
                parts.append(_Part(len(frame) - done, None, f"{part.error} (not tried)"))
                break
    return parts


def _pieces(scoring: Scoring, predict: Predict, frame: pd.DataFrame) -> Iterator[_Part]:
    """Stretches of rows in order, each with predictions or, one row long, with an error.

    A stretch that fails is halved: a few bad rows in a batch cost a few more calls.
    """
    if not len(frame):
        return
    try:
        yield _Part(len(frame), _predict(scoring, predict, frame), None)
    except Exception as error:  # noqa: BLE001 - whatever the model raises
        if len(frame) == 1:
            yield _Part(1, None, f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
            return
        middle = len(frame) // 2
        yield from _pieces(scoring, predict, frame.iloc[:middle])
        yield from _pieces(scoring, predict, frame.iloc[middle:])


def _predict(scoring: Scoring, predict: Predict, frame: pd.DataFrame) -> list[pa.Array]:
    """Predictions as the wanted columns, in their types."""
    import pandas as pd

    values = predict(_as_declared(frame, scoring.inputs))
    names = [name for name, _ in scoring.outputs]
    if isinstance(values, pd.DataFrame):
        found: list[Any] = (
            [values.iloc[:, 0]] if len(names) == 1 else [values[name] for name in names]
        )
    else:
        array = np.asarray(values)
        if array.ndim > 1 and array.shape[-1] == 1:
            array = array.reshape(len(array))
        if array.ndim != 1 or len(names) != 1:
            raise ValueError(f"{array.shape} predictions came for {len(frame)} rows of {names}")
        found = [array]
    if any(len(column) != len(frame) for column in found):
        raise ValueError(f"{len(found[0])} predictions came for {len(frame)} rows")
    return [
        _arrow(column, ARROW[kind])
        for column, (_, kind) in zip(found, scoring.outputs, strict=True)
    ]


def _arrow(column: Any, kind: pa.DataType) -> pa.Array:
    """A column in its declared type; a value that has no room in it is an error."""
    found = pa.array(column, from_pandas=not pa.types.is_floating(kind))
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    # A model may compute in doubles what its signature calls a float.
    return found.cast(kind, safe=not pa.types.is_floating(kind))


def _as_declared(frame: pd.DataFrame, inputs: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    """The model's columns in the types of its signature, where every value has room in them."""
    columns = {}
    for name, kind in inputs:
        column: Any = frame[name]
        wanted = _NUMPY.get(kind)
        # Whole numbers and booleans with nulls stay what they are: MLflow names them.
        if wanted and (wanted.startswith("float") or not column.isna().any()):
            column = column.astype(wanted)
        columns[name] = column
    return frame.assign(**columns)
