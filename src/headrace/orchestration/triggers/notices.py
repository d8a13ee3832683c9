"""Tells people of failures, recoveries, long runs and missed times, through Prefect's blocks."""

from __future__ import annotations

import asyncio
import getpass
import importlib
import inspect
import logging
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import formataddr
from pathlib import Path
from typing import Any, Final, Literal

from headrace.engines.log_tail import log_end
from headrace.ledger.firing_records import FiringRecord
from headrace.ledger.records import GOOD, AttemptRecord, RepairRecord, RunRecord
from headrace.ledger.store import Ledger
from headrace.orchestration.triggers.starter import log_path
from headrace.orchestration.triggers.watchers import Served, Surroundings, is_late
from headrace.profiles.notice_blocks import MAIL, split_name

log = logging.getLogger("headrace.serve")

Kind = Literal["failure", "recovery", "long", "missed"]

_LOOK_BACK: Final = timedelta(days=1)
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One thing that people are told.

    Attributes:
        key: What makes it the only one.
        kind: What kind of news.
        pipeline: Name of the pipeline.
        subject: One line.
        body: All that is needed to act.
        run_id: The run, or None.
    """

    key: str
    kind: Kind
    pipeline: str
    subject: str
    body: str
    run_id: str | None = None


@dataclass
class NoticeSender:
    """Finds what people have to be told, and tells them once.

    Args:
        around: Project and ledger.
        pipelines: The pipelines that are served, by name.
    """

    around: Surroundings
    pipelines: Mapping[str, Served]

    def turn(self) -> None:
        """Send what is new."""
        blocks = {name: self.blocks(served) for name, served in self.pipelines.items()}
        names = [name for name, found in blocks.items() if found]
        if not names:
            return
        for notice in self.find(names):
            ledger = self.around.ledger
            if not ledger.claim_notice(notice.key, kind=notice.kind, run_id=notice.run_id):
                continue
            ledger.finish_notice(notice.key, error=self._send(notice, blocks[notice.pipeline]))

    def blocks(self, served: Served) -> tuple[str, ...]:
        """Whom a pipeline's news go to: its own blocks and the environment's."""
        own = served.policy.notify
        return tuple(dict.fromkeys([*own, *self.around.project.environment.prefect.notify]))

    def find(self, names: list[str]) -> Iterator[Notice]:
        """News of some pipelines, told or not."""
        ledger, now = self.around.ledger, datetime.now(UTC)
        since = now - _LOOK_BACK
        for run, repair in ledger.ended_passes(names, since=since):
            if repair.state == "success":
                if ledger.trouble_before(run):
                    yield recovery_notice(run, repair)
            elif repair.state not in GOOD and repair.state != "cancelled":
                yield failure_notice(ledger, run, repair, log_path(self.around.project, run.id))
        for run, repair in ledger.passes_at_work(names):
            limit = self.pipelines[run.pipeline].policy.long_after_s
            begun = repair.started_at
            if limit is not None and begun and (now - begun).total_seconds() > limit:
                yield long_notice(run, repair, limit)
        for firing in ledger.late_firings(names, since=since):
            if firing.decision == "missed" or _is_late_run(firing):
                yield missed_notice(firing)

    def _send(self, notice: Notice, blocks: tuple[str, ...]) -> str | None:
        """Send to every block; the first error that came up, or None."""
        trouble = None
        for block in blocks:
            try:
                send(block, notice.subject, notice.body)
                log.info("%s: told %s: %s", notice.pipeline, block, notice.subject)
            except Exception as error:  # noqa: BLE001 - a block may fail in any way
                log.warning("%s: %s was not told: %s", notice.pipeline, block, error)
                trouble = trouble or f"{block}: {error}"
        return trouble


def send(name: str, subject: str, body: str) -> None:
    """Send a text through a Prefect block.

    Args:
        name: `type/name`, such as `slack-webhook/data-team`. Any notification block; a block of
            type `webhook`, which is given JSON with `subject`, `body` and `text`; or a mail server,
            `email-server-credentials/NAME?to=ADDRESS,ADDRESS`.
        subject: One line.
        body: The text.
    """
    from prefect.blocks.core import Block

    address, recipients = split_name(name)
    if address.startswith(f"{MAIL}/"):
        importlib.import_module("prefect_email")  # Prefect then knows the block's class
    block: Any = Block.load(address)
    if recipients:
        _mail(block, recipients, subject, body)
    elif hasattr(block, "notify"):
        with block.raise_on_failure():
            _wait(block.notify(body, subject))
    else:
        answer = _wait(block.call({"subject": subject, "body": body, "text": f"{subject}\n{body}"}))
        if answer is not None:
            answer.raise_for_status()


def _mail(server: Any, recipients: list[str], subject: str, body: str) -> None:
    message = EmailMessage()
    message["Subject"] = subject
    user = server.username or f"{getpass.getuser()}@{socket.getfqdn()}"
    message["From"] = formataddr(("headrace", user))
    message["To"] = ", ".join(recipients)
    message.set_content(body)
    with server.get_server() as connection:
        connection.send_message(message)


def failure_notice(ledger: Ledger, run: RunRecord, repair: RepairRecord, serve_log: Path) -> Notice:
    """A pass over a run that did not succeed: the errors, the end of the log, what to do."""
    attempts = [
        attempt
        for attempt in ledger.latest_attempts(run.id).values()
        if attempt.state not in GOOD and attempt.state != "upstream_failed"
    ]
    parts = [_about(run, repair)]
    parts += [_error_text(attempt) for attempt in attempts]
    tail = next((text for text in map(_tail_of, attempts) if text), "")
    if not attempts:
        tail = _tail(serve_log)
    if tail:
        parts.append(f"The end of the log:\n{tail}")
    parts.append(f"Repair it:  headrace repair {run.id}\nLook at it: headrace runs show {run.id}")
    return Notice(
        key=f"{run.id}/{repair.seq}/failure",
        kind="failure",
        pipeline=run.pipeline,
        run_id=run.id,
        subject=f"{run.pipeline} {_ended(repair.state)}: run {run.id}",
        body="\n\n".join(parts),
    )


def recovery_notice(run: RunRecord, repair: RepairRecord) -> Notice:
    """A success after trouble."""
    how = f"repair {repair.seq} succeeded" if repair.seq else "succeeded again"
    return Notice(
        key=f"{run.id}/{repair.seq}/recovery",
        kind="recovery",
        pipeline=run.pipeline,
        run_id=run.id,
        subject=f"{run.pipeline} has recovered: run {run.id} {how}",
        body=_about(run, repair),
    )


def long_notice(run: RunRecord, repair: RepairRecord, limit_s: float) -> Notice:
    """A run that takes longer than somebody expected."""
    ways = f"Look at it: headrace runs show {run.id}\nEnd it:     headrace cancel {run.id}"
    return Notice(
        key=f"{run.id}/{repair.seq}/long",
        kind="long",
        pipeline=run.pipeline,
        run_id=run.id,
        subject=f"{run.pipeline} takes longer than {limit_s:g} s: run {run.id}",
        body=f"{_about(run, repair)}\n\n{ways}",
    )


def missed_notice(firing: FiringRecord) -> Notice:
    """Times of a schedule that passed without a run, or got it late."""
    late = firing.decision == "run"
    what = f"{firing.trigger} ran late" if late else f"{firing.trigger} missed its time"
    when = firing.logical_time.isoformat() if firing.logical_time else firing.key
    lines = [f"pipeline   {firing.pipeline}", f"trigger    {firing.trigger}", f"time       {when}"]
    lines += [f"decided    {firing.created_at.isoformat()}"]
    lines += [f"run        {firing.run_id}"] if firing.run_id else []
    lines += [firing.reason] if firing.reason else []
    return Notice(
        key=f"firing/{firing.id}/missed",
        kind="missed",
        pipeline=firing.pipeline,
        run_id=firing.run_id,
        subject=f"{firing.pipeline}: {what}",
        body="\n".join(lines) + f"\n\nLook at it: headrace triggers show {firing.pipeline}",
    )


def _is_late_run(firing: FiringRecord) -> bool:
    scheduled = firing.facts.get("kind") in ("cron", "interval")
    moment = firing.logical_time
    return (
        scheduled
        and firing.decision == "run"
        and moment is not None
        and is_late(moment, firing.created_at)
    )


def _about(run: RunRecord, repair: RepairRecord) -> str:
    lines = [f"pipeline   {run.pipeline} ({run.entrypoint})", f"run        {run.id}"]
    lines += [f"repair     {repair.seq}"] if repair.seq else []
    lines += [f"state      {repair.state}", f"trigger    {run.trigger_key}"]
    lines += [f"parameters {', '.join(f'{k}={v}' for k, v in run.parameters.items())[:500] or '-'}"]
    if repair.started_at:
        end = repair.ended_at or datetime.now(UTC)
        seconds = max(0.0, (end - repair.started_at).total_seconds())
        lines.append(f"started    {repair.started_at.isoformat()}, {seconds:.0f} s")
    return "\n".join(lines)


def _error_text(attempt: AttemptRecord) -> str:
    error = attempt.error
    what = f"{error.type}: {error.message.strip()[:1500]}" if error else attempt.reason or ""
    return f"{attempt.name} {_ended(attempt.state)} (attempt {attempt.number})\n{what}".rstrip()


def _ended(state: str) -> str:
    words = {"timed_out": "took too long", "crashed": "crashed", "cancelled": "was cancelled"}
    return words.get(state, "failed")


def _tail_of(attempt: AttemptRecord) -> str:
    return _tail(Path(attempt.log_path)) if attempt.log_path else ""


def _tail(path: Path) -> str:
    return log_end(path, most_lines=_TAIL_LINES, most_bytes=_TAIL_BYTES)


def _wait(value: Any) -> Any:
    if not inspect.isawaitable(value):
        return value

    async def waiting() -> Any:
        return await value

    return asyncio.run(waiting())
