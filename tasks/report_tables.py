"""The tables of the report, as HTML."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from headrace import TableRef
from tasks.delay_metrics import CLOSE_MINUTES
from tasks.feature_matrix import TARGET

if TYPE_CHECKING:
    import pandas as pd

_MODELS = {"model": "This model", "linear": "Linear model", "mean": "Always the mean"}
_LEAST_FLIGHTS = 60
_SHOWN_ROUTES = 8
_BAR_PIXELS = 200


@dataclass(frozen=True)
class Routes:
    """The routes with the largest errors, and how they were chosen."""

    rows: "pd.DataFrame"
    note: str


def comparison_table(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """One row per model, with a bar for its RMSE."""
    longest = max(values["rmse"] for values in metrics.values()) or 1.0
    rows = []
    for name, label in _MODELS.items():
        values = metrics[name]
        width = round(_BAR_PIXELS * values["rmse"] / longest)
        cells = [
            f"<td>{label}</td>",
            f'<td><span class="bar" style="width:{width}px"></span></td>',
            *(
                f'<td class="n">{text}</td>'
                for text in (
                    f"{values['rmse']:.2f}",
                    f"{values['mae']:.2f}",
                    f"{values['close']:.1%}",
                    f"{values['r2']:z.3f}",
                )
            ),
        ]
        strong = ' class="strong"' if name == "model" else ""
        rows.append(f"<tr{strong}>{''.join(cells)}</tr>")
    close = f"Within {CLOSE_MINUTES} min"
    return _table(["", "", "RMSE, min", "MAE, min", close, "R²"], rows, numbers=range(2, 6))


def worst_routes(frame: "pd.DataFrame") -> Routes:
    """The routes with the largest mean absolute error among those with enough test flights."""
    error = (frame["model"] - frame[TARGET]).abs()
    groups = frame.assign(error=error).groupby(["origin", "dest"], observed=True)
    routes = groups.agg(
        flights=("error", "size"),
        actual=(TARGET, "mean"),
        predicted=("model", "mean"),
        error=("error", "mean"),
    )
    usual = routes[routes["flights"] >= _LEAST_FLIGHTS]
    note = f"By mean absolute error, of the {len(usual)} routes with {_LEAST_FLIGHTS} flights"
    # A small sample may have no route with that many flights.
    chosen, note = (usual, f"{note} or more.") if len(usual) else (routes, "Of all routes.")
    return Routes(chosen.nlargest(_SHOWN_ROUTES, "error").reset_index(), note)


def routes_table(routes: Routes, airports: Mapping[str, str]) -> str:
    """One row per route, with the name of where it goes."""
    rows = [
        "<tr>"
        f"<td>{escape(str(route.origin))} → {escape(str(route.dest))}</td>"
        f'<td class="faint">{escape(airports.get(str(route.dest), ""))}</td>'
        f'<td class="n">{route.flights:,}</td>'
        f'<td class="n">{route.actual:+.1f}</td>'
        f'<td class="n">{route.predicted:+.1f}</td>'
        f'<td class="n">{route.error:.1f}</td>'
        "</tr>"
        for route in routes.rows.itertuples(index=False)
    ]
    head = ["Route", "", "Flights", "Mean delay, min", "Mean predicted", "MAE, min"]
    return _table(head, rows, numbers=range(2, 6))


def inputs_table(tables: Mapping[str, TableRef]) -> str:
    """One row per table, with the version that was read."""
    rows = [
        "<tr>"
        f"<td>{escape(name)}</td>"
        f'<td class="n">{ref.version}</td>'
        f'<td class="n">{_count(ref.row_count)}</td>'
        f"<td><code>{ref.schema_hash[:10]}</code></td>"
        f"<td><code>{escape(ref.uri)}</code></td>"
        "</tr>"
        for name, ref in tables.items()
    ]
    return _table(["Table", "Version", "Rows", "Schema", "Place"], rows, numbers=range(1, 3))


def _count(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"


def _table(head: Iterable[str], rows: Iterable[str], *, numbers: range) -> str:
    cells = "".join(
        f'<th class="n">{name}</th>' if place in numbers else f"<th>{name}</th>"
        for place, name in enumerate(head)
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
