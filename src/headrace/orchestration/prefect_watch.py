"""Cancels that come from Prefect's page, and how a cancelled run shows there."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.states import Cancelled

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

    from headrace.orchestration.session import RunSession

log = logging.getLogger("headrace.run")

POLL_S = 3.0


@contextmanager
def watch_prefect(session: RunSession, flow_run_id: UUID) -> Iterator[None]:
    """Label the flow run with the run's id, and stop the run when somebody cancels it in Prefect.

    Prefect's runner ends the processes of runs that it started; for all others, such as those of
    `headrace run`, a cancel in Prefect is a wish that nobody else looks at.
    """
    over = threading.Event()

    def work() -> None:
        _label(session, flow_run_id)
        while not over.wait(POLL_S):
            # A server that is away has nothing to say; the run goes on without it.
            with contextlib.suppress(Exception), get_client(sync_client=True) as client:
                while not over.wait(POLL_S):
                    state = client.read_flow_run(flow_run_id).state
                    if state is not None and (state.is_cancelling() or state.is_cancelled()):
                        session.stop("cancelled in Prefect")
                        return

    thread = threading.Thread(target=work, name="headrace-prefect-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=POLL_S)


def _label(session: RunSession, flow_run_id: UUID) -> None:
    """Let Prefect's page and its API tell which run and which repair a flow run is."""
    labels: dict[str, bool | int | float | str] = {
        "headrace.run_id": session.run.id,
        "headrace.repair": session.repair.seq,
    }
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        client.update_flow_run_labels(flow_run_id, labels)


def show_cancelled(flow_run: FlowRun, reason: str) -> None:
    """Let Prefect show the flow run as cancelled, and not as failed by the error that ended it."""
    state: State[Any] = Cancelled(message=reason.splitlines()[0] if reason else None)
    try:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, state, force=True)
    except Exception as error:  # noqa: BLE001 - the ledger has it
        log.debug("Prefect does not show the cancel: %s", error)
        return
    # Prefect's engine leaves a final state alone.
    flow_run.state = state
