"""Tasks that do not start: excluded, failed before they began, cancelled, or called wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from prefect.states import Completed, Failed

from headrace.exceptions import HeadraceError, UpstreamFailedError, UserError
from headrace.ledger.records import AttemptRecord, AttemptRequest, ErrorInfo
from headrace.orchestration.events import TaskEvent, tell_task
from headrace.orchestration.state_names import EXCLUDED, UPSTREAM_FAILED

if TYPE_CHECKING:
    from headrace.orchestration.session import RunSession


def stand_aside(
    session: RunSession,
    request: AttemptRequest,
    verdict: Literal["upstream_failed", "excluded"],
    reason: str,
) -> Any:
    """Record a task whose condition is not met, and give the Prefect state that shows it."""
    _record(session, request, verdict, reason)
    return state_of(request.task, verdict, reason)


def state_of(task: str, verdict: str, reason: str) -> Any:
    """The Prefect state of a task that did not start."""
    if verdict == "excluded":
        return Completed(name=EXCLUDED, message=reason)
    error = UpstreamFailedError(
        task=task,
        error_type="headrace.exceptions.UpstreamFailedError",
        error_message=reason,
        traceback="",
        log_path="",
        retryable=False,
    )
    return Failed(name=UPSTREAM_FAILED, message=reason, data=error)


def record_cancelled(session: RunSession, request: AttemptRequest) -> None:
    """Record a task that a cancel came before."""
    reason = session.stop_reason or "cancelled"
    _record(session, request, "cancelled", f"it had not started: {reason}")


def record_refused(session: RunSession, request: AttemptRequest, error: Exception) -> None:
    """Record a call that was wrong, so that a pipeline that ignores it is not green."""
    info = ErrorInfo(
        type=type(error).__name__, message=str(error), retryable=not isinstance(error, UserError)
    )
    try:
        _record(session, request, "failed", "its call was refused", error=info)
    except HeadraceError:
        # The run was fenced meanwhile; the caller raises what was wrong.
        return


def _record(
    session: RunSession,
    request: AttemptRequest,
    state: Literal["upstream_failed", "excluded", "cancelled", "failed"],
    reason: str,
    *,
    error: ErrorInfo | None = None,
) -> AttemptRecord:
    tell_task(
        TaskEvent(
            task=request.task,
            key=request.key,
            profile=request.profile or "",
            state=state,
            error=error.message if error else "",
            reason=reason,
        )
    )
    return session.ledger.record_skipped(
        session.run.id,
        request,
        state,
        seq=session.repair.seq,
        token=session.token,
        reason=reason,
        error=error,
    )
