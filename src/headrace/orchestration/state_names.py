"""Names of Prefect states that say more than their type."""

from __future__ import annotations

from typing import Final

REUSED: Final = "Reused"
"""Completed: an earlier result of the task stands."""

EXCLUDED: Final = "Excluded"
"""Completed: the task was not needed."""

UPSTREAM_FAILED: Final = "UpstreamFailed"
"""Failed: the task did not start, because of how those before it ended."""
