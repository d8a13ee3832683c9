"""One model of many: it looks at the group of each row and lets that group's model predict.

MLflow loads it by `_load_pyfunc`; a group's own model is read when its first row comes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.exceptions import MlRequestError
from headrace.ml.group_pack import Pack, open_pack
from headrace.ml.group_plan import name_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_SHOWN = 5


def _load_pyfunc(path: str) -> GroupModels:
    """What MLflow calls with the folder of the pack."""
    return GroupModels(open_pack(Path(path)))


class GroupModels:
    """The models of all groups.

    Attributes:
        by: Columns that choose the model.
        features: Columns that it predicts from.
    """

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self.by: list[str] = pack.facts["by"]
        self.features: list[str] = pack.facts["features"]
        self._predict: Callable[[Any, Any], Any] = pack.load_predict() or _default_predict

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """The groups that have a model."""
        return list(self._pack.entries)

    def model(self, *key: Any) -> Any:
        """The model of one group, as its fit returned it.

        Raises:
            MlRequestError: It has none.
        """
        found = tuple(_plain(value) for value in key)
        if found not in self._pack.entries:
            raise self._unknown([found])
        return self._pack.load(found)

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Predict each row with its group's model.

        Args:
            frame: Rows with the columns `by` and `features`.
            params: Not used.

        Returns:
            Predictions in the order of the rows: an array, or a frame where models give frames.

        Raises:
            MlRequestError: A row's group has no model.
        """
        del params
        pieces = list(self._pieces(frame))
        missing = [key for key, _ in pieces if key not in self._pack.entries]
        if missing:
            raise self._unknown(missing)
        found = [
            self._predict(self._pack.load(key), frame.iloc[rows][self.features])
            for key, rows in pieces
        ]
        if not found:
            return np.array([], dtype=float)
        return _in_order(found, [rows for _, rows in pieces], frame)

    def _pieces(self, frame: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], NDArray[np.int64]]]:
        """Each group's key and the places of its rows."""
        if not len(frame):
            return
        codes = frame.groupby(self.by, dropna=False, sort=False).ngroup().to_numpy()
        order = np.argsort(codes, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            first = frame[self.by].iloc[rows[0]]
            yield tuple(_plain(value) for value in first), rows

    def _unknown(self, keys: list[tuple[Any, ...]]) -> MlRequestError:
        names = "; ".join(name_of(key, self.by) for key in keys[:_SHOWN])
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        return MlRequestError(
            problem=f"No model for {names}{more}.",
            found=f"Models of {len(self._pack.entries)} groups are here; the table of results says "
            "why a group has none.",
            fix="ml.train_per_group(..., only_changed=True) trains the groups that have none",
        )


def _default_predict(model: Any, frame: pd.DataFrame) -> Any:
    """`model.predict`, with the columns that scikit-learn says it was fitted on, if it does."""
    names = getattr(model, "feature_names_in_", None)
    return model.predict(frame if names is None else frame[list(names)])


def _in_order(found: list[Any], rows: list[NDArray[np.int64]], frame: pd.DataFrame) -> Any:
    """The groups' predictions, back in the order of the rows."""
    import pandas as pd

    back = np.argsort(np.concatenate(rows), kind="stable")
    for part, places in zip(found, rows, strict=True):
        if len(part) != len(places):
            raise ValueError(f"{len(part)} predictions came for {len(places)} rows")
    if isinstance(found[0], pd.DataFrame):
        joined = pd.concat(found, ignore_index=True).iloc[back]
        return joined.set_axis(frame.index, axis=0)
    return np.concatenate([np.asarray(part) for part in found])[back]


def _plain(value: Any) -> Any:
    """A key's value as Python has it: MLflow's schema makes dates times, and pandas nulls NaN."""
    if value is None or value != value:  # noqa: PLR0124 - NaN and NaT
        return None
    if isinstance(value, dt.datetime):
        return value.date()
    return value.item() if isinstance(value, np.generic) else value
