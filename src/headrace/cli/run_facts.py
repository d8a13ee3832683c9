"""What can be compared between two runs, as one flat list of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engines.spec import untag_tables
from headrace.tables import TableRef

if TYPE_CHECKING:
    from headrace.ledger.records import RunRecord
    from headrace.ledger.store import Ledger


def run_facts(ledger: Ledger, run: RunRecord) -> dict[str, str]:
    """Parameters, code, profiles, table versions and results of a run, by name."""
    repair = ledger.current_repair(run.id)
    code = repair.code if repair.code.commit else run.code
    facts = {
        "state": run.state,
        "environment": run.environment,
        "code": (code.commit or "unknown") + (" with changes" if code.dirty else ""),
    }
    for name, value in {**run.parameters, **repair.parameters}.items():
        facts[f"parameter {name}"] = str(value)
    for name, attempt in ledger.latest_attempts(run.id).items():
        facts[f"{name} state"] = attempt.state
        facts[f"{name} profile"] = attempt.profile or ""
        for use in attempt.inputs:
            facts[f"{name} reads {use.ref.name or use.ref.uri}"] = f"version {use.ref.version}"
        for use in attempt.outputs:
            rows = f", {use.ref.row_count:,} rows" if use.ref.row_count is not None else ""
            facts[f"{name} writes {use.ref.name or use.ref.uri}"] = (
                f"version {use.ref.version}{rows}"
            )
        facts |= _values(f"{name} result", untag_tables(attempt.result))
    return facts


def _values(name: str, value: Any) -> dict[str, str]:
    """The plain values inside a result, each under its path."""
    if isinstance(value, TableRef) or value is None:
        return {}
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= _values(f"{name}.{key}", item)
        return found
    return {name: str(value)[:200]}
