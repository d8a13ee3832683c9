"""The terminal while a run goes on: one line per task, or plain lines without a terminal."""

from __future__ import annotations

import threading
import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.orchestration.events import RunEvent, TaskEvent

MARKS = {
    "success": ("✓", "green"),
    "reused": ("↺", "cyan"),
    "failed": ("✗", "red"),
    "crashed": ("✗", "red"),
    "timed_out": ("✗", "red"),
    "cancelled": ("■", "yellow"),
    "upstream_failed": ("·", "yellow"),
    "excluded": ("·", "dim"),
    "queued": ("…", "dim"),
}


class LiveDisplay:
    """A table that is drawn again and again: state, time, memory, rows, last line of the log."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.tasks: dict[str, TaskEvent] = {}
        self.begun: dict[str, float] = {}
        self.last_line: dict[str, str] = {}
        self.run: RunEvent | None = None
        self.header = Text("Starting ...", style="bold")
        self.links = Text("")
        self.spinner = Spinner("dots", style="cyan")
        self._lock = threading.Lock()
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=4, transient=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Change the headline."""
        self.header = Text(text, style="bold")

    def on_run(self, event: RunEvent) -> None:
        """Show the run's name and links."""
        self.run = self.run or event
        repair = f", repair {event.repair}" if event.repair else ""
        self.header = Text.assemble(
            (event.pipeline, "bold"), f"  run {event.run_id}{repair}  ", (event.state, "bold cyan")
        )
        self.links = Text("\n").join(
            Text.assemble((f"{name:<8}", "dim"), (url, "blue underline"))
            for name, url in event.links.items()
        )

    def on_task(self, event: TaskEvent) -> None:
        """Keep the newest state of a task."""
        with self._lock:
            if event.state == "running" and event.label not in self.begun:
                self.begun[event.label] = time.monotonic()
            if event.state != "running":
                self.begun.pop(event.label, None)
            self.tasks[event.label] = event

    def on_line(self, label: str, line: str) -> None:
        """Keep the newest line of a task."""
        if line.strip():
            self.last_line[label] = line.strip()

    def render(self) -> Group:
        """What the terminal shows now."""
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(self.tasks))
        table.add_column("")
        table.add_column("task", no_wrap=True)
        table.add_column("profile", style="dim", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("memory", justify="right", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
        table.add_column("", style="dim", no_wrap=True, overflow="ellipsis", ratio=1)
        with self._lock:
            for label, event in self.tasks.items():
                table.add_row(*self._row(label, event))
        return Group(self.header, self.links, table)

    def _row(self, label: str, event: TaskEvent) -> tuple[Text | Spinner | str, ...]:
        mark, style = MARKS.get(event.state, ("", "cyan"))
        running = event.state == "running"
        begun = self.begun.get(label)
        seconds = time.monotonic() - begun if running and begun else event.seconds
        attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        last = self.last_line.get(label, "") if running else _outcome(event)
        return (
            self.spinner if running else Text(mark, style=style),
            label,
            event.profile,
            Text(event.state + attempt, style=style),
            f"{seconds:.0f} s" if seconds else "",
            f"{event.memory_mib:,.0f} MiB" if event.memory_mib else "",
            f"{event.rows:,}" if event.rows is not None else "",
            last,
        )


class PlainDisplay:
    """A line at each change, for logs and pipes."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self.console = console
        self.verbose = verbose
        self.states: dict[str, str] = {}
        self.run: RunEvent | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def say(self, text: str) -> None:
        """Print a line of progress."""
        self._print(text)

    def on_run(self, event: RunEvent) -> None:
        """Print that a run began or ended."""
        self.run = self.run or event
        repair = f" repair {event.repair}" if event.repair else ""
        took = f" after {event.seconds:.0f} s" if event.seconds else ""
        self._print(f"{event.pipeline}: run {event.run_id}{repair} {event.state}{took}")
        if event.state == "running":
            for name, url in event.links.items():
                self._print(f"  {name}: {url}")

    def on_task(self, event: TaskEvent) -> None:
        """Print a change of state; growing figures are not worth a line."""
        if self.states.get(event.label) == event.state:
            return
        self.states[event.label] = event.state
        figures = f" in {event.seconds:.1f} s" if event.seconds and event.state != "running" else ""
        if event.memory_mib and event.state != "running":
            figures += f", {event.memory_mib:,.0f} MiB"
        if event.rows is not None:
            figures += f", {event.rows:,} rows"
        outcome = _outcome(event)
        note = f"  {outcome}" if outcome and event.state != "running" else ""
        profile = f" ({event.profile})" if event.profile else ""
        self._print(f"  {event.label}{profile}: {event.state}{figures}{note}")

    def on_line(self, label: str, line: str) -> None:
        """Print a task's line when asked for."""
        if self.verbose:
            self._print(f"    {label} | {line}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _outcome(event: TaskEvent) -> str:
    """What a finished task made, or the first line of what went wrong."""
    if event.error:
        return event.error.strip().splitlines()[0]
    return event.reason or ", ".join(event.tables)


def open_display(console: Console, *, verbose: bool) -> LiveDisplay | PlainDisplay:
    """The display that fits the terminal."""
    if console.is_terminal and not verbose:
        return LiveDisplay(console)
    return PlainDisplay(console, verbose=verbose)
