"""Predictions to a page that says how good the model is, where, and what it was made from."""

import base64
import io
import tempfile
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from headrace import TableRef, TaskContext, python_task, read_arrow
from tasks.delay_charts import draw_error_by, draw_importance, draw_predicted_against_actual
from tasks.delay_metrics import CLOSE_MINUTES, measure_delays
from tasks.feature_matrix import TARGET
from tasks.report_tables import comparison_table, inputs_table, routes_table, worst_routes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_FILE = "flight_delays.html"
_TITLE = "Flight delays out of New York, 2013"


@python_task(profile="small")
def report_delays(
    tables: dict[str, TableRef],
    model: dict[str, Any],
    predictions: TableRef,
    *,
    context: TaskContext,
) -> dict[str, str]:
    """Write one HTML page with numbers and pictures, and attach it to the run.

    The page needs no other file and no network.

    Args:
        tables: The tables that the model was made from, by name; `airports` and `airlines` too.
        model: What `train_delay_model` returned.
        predictions: The table of `score_flights`.
        context: The task's context.

    Returns:
        `path` of the page, and `markdown`: its headline numbers as a short text.
    """
    frame = _read_predictions(predictions, mean_delay=model["mean_delay"])
    # The model is measured again on what was written, the baselines as they were at training.
    metrics = {**model["metrics"], "model": measure_delays(frame[TARGET], frame["model"])}
    page = _fill_page(frame, {**tables, "predictions": predictions}, {**model, "metrics": metrics})
    path = _report_folder(context) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    summary = _summary(model, metrics, len(frame))
    # The page goes to MLflow and the text to Prefect, where a person looks first.
    context.attach(_TITLE, path=path, markdown=summary)
    context.logger.info("report: %s", path)
    return {"path": str(path), "markdown": summary}


def _read_predictions(predictions: TableRef, *, mean_delay: float) -> "pd.DataFrame":
    """The predictions with the columns that charts and metrics expect."""
    columns = ["carrier", "origin", "dest", "month", "hour", TARGET, "predicted_delay"]
    frame: pd.DataFrame = read_arrow(predictions, columns=columns).to_pandas()
    return frame.rename(columns={"predicted_delay": "model"}).assign(mean=mean_delay)


def _report_folder(context: TaskContext) -> Path:
    """Beside the lake when that is a folder here, else a temporary one: MLflow keeps the page."""
    if "://" in context.lake:
        return Path(tempfile.mkdtemp(prefix="report-"))
    return Path(context.lake).absolute().parent / "reports" / context.run_id


def _fill_page(frame: "pd.DataFrame", tables: dict[str, TableRef], model: dict[str, Any]) -> str:
    airports = _names(tables["airports"], "faa")
    routes = worst_routes(frame)
    template = Template(Path(__file__).with_name("delay_report.html").read_text("utf-8"))
    return template.substitute(
        title=_TITLE,
        eyebrow=escape(f"{model['name']} version {model['version']}"),
        lede=_lede(model, len(frame)),
        cards=_cards(model["metrics"]),
        comparison=comparison_table(model["metrics"]),
        chart_actual=_picture(draw_predicted_against_actual(frame[TARGET], frame["model"])),
        chart_importance=_picture(draw_importance(model["importance"])),
        chart_hour=_picture(draw_error_by(frame, "hour", wide=True)),
        chart_carrier=_picture(draw_error_by(frame, "carrier")),
        chart_month=_picture(draw_error_by(frame, "month")),
        carriers=escape(_carrier_note(frame, _names(tables["airlines"], "carrier"))),
        routes_note=escape(routes.note),
        routes=routes_table(routes, airports),
        inputs=inputs_table(tables),
        footer=escape(f"Model {model['uri']}, {model['trees']} trees. Made by headrace."),
    )


def _names(table: TableRef, key: str) -> dict[str, str]:
    columns = read_arrow(table, columns=[key, "name"]).to_pydict()
    return dict(zip(columns[key], columns["name"], strict=True))


def _lede(model: dict[str, Any], rows: int) -> str:
    return (
        "How many minutes late will a flight arrive? The model knows what is known when the hour "
        "of departure begins: the schedule, the plane, the weather, and how the airport is doing. "
        f"It learned from {model['train_rows']:,} flights and is tested here on {rows:,} flights "
        "of other days."
    )


def _cards(metrics: dict[str, dict[str, float]]) -> str:
    ours, linear, mean = metrics["model"], metrics["linear"], metrics["mean"]
    gain = 1 - ours["rmse"] / mean["rmse"]
    over_linear = 1 - ours["rmse"] / linear["rmse"]
    cards = [
        (
            "Root mean square error",
            f"{ours['rmse']:.1f} <small>min</small>",
            f"{gain:.1%} below the mean, {over_linear:.1%} below linear",
        ),
        (
            "Mean absolute error",
            f"{ours['mae']:.1f} <small>min</small>",
            f"mean {mean['mae']:.1f}, linear {linear['mae']:.1f}",
        ),
        (
            f"Within {CLOSE_MINUTES} minutes",
            f"{100 * ours['close']:.0f} <small>%</small>",
            f"mean {mean['close']:.0%}, linear {linear['close']:.0%}",
        ),
        (
            "Variance explained (R²)",
            f"{ours['r2']:z.3f}",
            f"linear {linear['r2']:z.3f}",
        ),
    ]
    return "".join(
        f'<div class="card"><p class="label">{label}</p><p class="value">{value}</p>'
        f'<p class="sub">{sub}</p></div>'
        for label, value, sub in cards
    )


def _carrier_note(frame: "pd.DataFrame", names: dict[str, str]) -> str:
    """Names of the carriers with the most flights, for readers who don't know the codes."""
    largest = frame["carrier"].value_counts().index[:5]
    return ", ".join(f"{code} {names.get(code, '')}".strip() for code in largest) + ", …"


def _picture(figure: "Figure") -> str:
    """A figure as an address that holds the picture itself."""
    target = io.BytesIO()
    figure.savefig(target, format="svg", dpi=200)
    return f"data:image/svg+xml;base64,{base64.b64encode(target.getvalue()).decode()}"


def _summary(model: dict[str, Any], metrics: dict[str, dict[str, float]], rows: int) -> str:
    """The headline numbers as Markdown."""
    head = f"**{model['name']} version {model['version']}** on {rows:,} test flights\n\n"
    table = "| | RMSE, min | MAE, min | R² |\n|---|---:|---:|---:|\n"
    return (
        head
        + table
        + "".join(
            f"| {name} | {metrics[name]['rmse']:.2f} | {metrics[name]['mae']:.2f} "
            f"| {metrics[name]['r2']:z.3f} |\n"
            for name in ("model", "linear", "mean")
        )
    )
