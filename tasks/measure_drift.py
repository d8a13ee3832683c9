"""How far the flights that arrive have moved from those that the model was trained on."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import TableRef, TaskContext, python_task, read_arrow, write_arrow
from tasks.drift_index import DRIFTED, SHIFTED, stability_index
from tasks.feature_matrix import CATEGORIES, NUMBERS, TARGET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 15
_COLORS = {"drifted": "#e07a3f", "shifted": "#d9b36c", "steady": "#1f6f8b"}


@python_task(profile="small")
def measure_drift(
    arrivals: TableRef, predictions: TableRef, *, context: TaskContext
) -> dict[str, Any]:
    """Measure the population stability index of each feature, of the delay and its prediction.

    Below 0.1 a column is steady, from 0.25 on it has drifted: the model sees other flights than
    it was trained on. The figures go to the table `drift`, a picture of them to the run.

    Args:
        arrivals: The table of `append_flights`.
        predictions: The table of `score_arrivals`.
        context: The task's context.

    Returns:
        The largest index and its column, the columns that have drifted, and the mean error.
    """
    columns = [*CATEGORIES, *NUMBERS, TARGET]
    trained = read_arrow("features", columns=[*columns, "split"], filter="split = 'train'")
    arrived = read_arrow(arrivals, columns=columns)
    scored = read_arrow(predictions, columns=[TARGET, "predicted_delay"])
    indexes = {
        name: stability_index(trained[name].to_pylist(), arrived[name].to_pylist())
        for name in columns
    }
    largest = max(indexes, key=lambda name: indexes[name])
    write_arrow(
        {
            "arrivals_version": [arrivals.version] * len(indexes),
            "column": list(indexes),
            "stability_index": list(indexes.values()),
        },
        "drift",
        mode="append",
    )
    path = _folder(context) / "drift.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    _draw(indexes).savefig(path, dpi=120)
    context.attach("Drift", path=path, markdown=_table(indexes))
    errors = [abs(row[TARGET] - row["predicted_delay"]) for row in scored.to_pylist()]
    return {
        "largest": largest,
        "stability_index": round(indexes[largest], 4),
        "drifted": sorted(name for name, value in indexes.items() if value >= DRIFTED),
        "flights": len(errors),
        "mean_error_minutes": round(sum(errors) / max(1, len(errors)), 2),
    }


def _folder(context: TaskContext) -> Path:
    """Beside a lake on this machine, as the report of `train_delays`."""
    if "://" in context.lake:
        return Path(tempfile.mkdtemp(prefix="drift-"))
    return Path(context.lake).absolute().parent / "reports" / context.run_id


def _draw(indexes: Mapping[str, float]) -> "Figure":
    from matplotlib.figure import Figure

    largest = sorted(indexes, key=lambda name: indexes[name])[-_SHOWN:]
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    axes.barh(
        [name.replace("_", " ") for name in largest],
        [indexes[name] for name in largest],
        color=[_COLORS[_word(indexes[name])] for name in largest],
    )
    for limit in (SHIFTED, DRIFTED):
        axes.axvline(limit, color="#6b7a89", linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("population stability index: new flights against those of the training")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _table(indexes: Mapping[str, float]) -> str:
    rows = sorted(indexes.items(), key=lambda item: -item[1])
    lines = [f"| {name} | {value:.3f} | {_word(value)} |" for name, value in rows]
    return "\n".join(["| column | index | |", "|---|---:|---|", *lines])


def _word(value: float) -> str:
    return "drifted" if value >= DRIFTED else "shifted" if value >= SHIFTED else "steady"
