"""Charts of a delay model, drawn alike for MLflow and for the report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.delay_metrics import error_by

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

INK, MUTED, GRID = "#1b2733", "#6b7a89", "#e4e9ee"
MODEL, BASELINE, ACCENT = "#1f6f8b", "#c9d2da", "#e07a3f"

# Inches; at these widths the text has the size of the page's own notes.
_HALF_PAGE, _WHOLE_PAGE = 5.6, 11.6
_SHOWN_MINUTES = (-60, 180)
_TOP_FEATURES = 15
_LABELS = {"hour": "hour of scheduled departure", "carrier": "carrier", "month": "month of 2013"}
_FONTS = ("Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans")


def draw_predicted_against_actual(actual: "ArrayLike", predicted: "ArrayLike") -> "Figure":
    """Where flights lie between predicted and actual delay, with the mean of what happened."""
    figure, axes = _new_figure(_HALF_PAGE, 4.4)
    low, high = _SHOWN_MINUTES
    shown = axes.hexbin(
        np.clip(predicted, low, high),
        np.clip(actual, low, high),
        gridsize=48,
        extent=(low, high, low, high),
        bins="log",
        mincnt=1,
        cmap=_blues(),
        linewidths=0.15,
        rasterized=True,
    )
    axes.plot(
        [low, high],
        [low, high],
        color=MUTED,
        linewidth=1,
        linestyle=(0, (4, 3)),
        label="as predicted",
    )
    middles, means = _mean_by_prediction(actual, predicted)
    axes.plot(middles, means, color=ACCENT, linewidth=2.2, label="what happened, on average")
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("predicted delay, minutes")
    axes.set_ylabel("actual delay, minutes")
    bar = figure.colorbar(shown, ax=axes, pad=0.02, aspect=32)
    bar.outline.set_visible(False)
    bar.set_label("flights", color=MUTED)
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    return figure


def draw_importance(importance: Mapping[str, float]) -> "Figure":
    """The features that the trees gained most from, largest on top."""
    top = sorted(importance.items(), key=lambda item: item[1])[-_TOP_FEATURES:]
    names = [name.replace("_", " ") for name, _ in top]
    shares = [100 * share for _, share in top]
    figure, axes = _new_figure(_HALF_PAGE, 0.7 + 0.245 * max(4, len(top)))
    bars = axes.barh(names, shares, color=MODEL, height=0.68)
    axes.bar_label(bars, fmt="%.1f %%", padding=4, color=MUTED, fontsize=8.5)
    axes.set_xlabel("share of the gain of all splits")
    axes.set_xlim(0, max(shares, default=1) * 1.16)
    axes.xaxis.set_major_formatter("{x:.0f} %")
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False, axis="y")
    return figure


def draw_learning(history: Mapping[str, Sequence[float]], best_round: int) -> "Figure":
    """The error of each round on training and validation flights."""
    figure, axes = _new_figure(_HALF_PAGE, 3.2)
    for name, color in (("train", MUTED), ("validation", MODEL)):
        errors = history[name]
        rounds = range(1, len(errors) + 1)
        axes.plot(rounds, errors, color=color, linewidth=2)
        axes.annotate(
            name,
            (len(errors), errors[-1]),
            xytext=(6, -3),
            textcoords="offset points",
            color=color,
            weight="bold",
        )
    axes.axvline(best_round, color=ACCENT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(
        best_round,
        0.98,
        f"best: {best_round} ",
        transform=axes.get_xaxis_transform(),
        ha="right",
        va="top",
        color=ACCENT,
        weight="bold",
    )
    axes.margins(x=0)
    axes.set_xlabel("trees")
    axes.set_ylabel("RMSE, minutes")
    return figure


def draw_error_by(frame: "pd.DataFrame", column: str, *, wide: bool = False) -> "Figure":
    """The mean absolute error in each group, of the model and of the mean.

    Args:
        frame: Columns `arr_delay`, `model` and `mean`, and the one to group by.
        column: `hour`, `carrier` or `month`.
        wide: For the full width of a page instead of half of it.
    """
    groups = error_by(frame, column)
    figure, axes = _new_figure(_WHOLE_PAGE if wide else _HALF_PAGE, 3.0)
    places = np.arange(len(groups))
    axes.bar(places, groups["mean"], width=0.78, color=BASELINE, label="always the mean")
    axes.bar(places, groups["model"], width=0.5, color=MODEL, label="model")
    whole = groups.index.dtype.kind in "iuf"
    axes.set_xticks(places, [f"{name:.0f}" if whole else str(name) for name in groups.index])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xlabel(_LABELS.get(column, column))
    axes.set_ylabel("mean absolute error, min")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, labelcolor=INK)
    return figure


def _mean_by_prediction(
    actual: "ArrayLike", predicted: "ArrayLike"
) -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Mean prediction and mean delay in twenty groups of flights with similar predictions."""
    order = np.argsort(np.asarray(predicted))
    groups = [group for group in np.array_split(order, 20) if len(group)]
    middles = np.array([np.asarray(predicted)[group].mean() for group in groups])
    means = np.array([np.asarray(actual)[group].mean() for group in groups])
    return middles, means


def _new_figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """An empty figure in the house style; without pyplot, so nothing is global."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    mpl.rcParams["font.family"] = next(name for name in _FONTS if name in installed)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=MUTED, labelsize=9)
    axes.xaxis.label.set(color=MUTED, fontsize=10)
    axes.yaxis.label.set(color=MUTED, fontsize=10)
    return figure, axes


def _blues() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("delays", ["#e6f0f3", "#7fb3c4", MODEL, "#0c2f3d"])
