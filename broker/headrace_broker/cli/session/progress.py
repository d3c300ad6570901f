"""Progress of long work, shown on a terminal while it runs, and nowhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

WAIT_S: Final = 120.0  # seconds for what a cluster is to do, unless said otherwise
POLL_S: Final = 0.5  # between looks whether it is done

wait_option = click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until it is done; 0 only begins it.",
)


class Gauge:
    """Progress reports of long work; this class shows nothing."""

    def __init__(self, text: str) -> None:
        self.text = text  # what goes on, for people
        self.done = 0.0  # how much of it is done
        self.total: float | None = None  # how much there is, None while nobody knows

    def show(self, text: str) -> None:
        """Say what goes on now."""
        self.text = text
        self._show()

    def reach(self, done: float, total: float) -> None:
        """Say how much is done, of how much."""
        self.done, self.total = done, total
        self._show()

    def remain(self, left: float) -> None:
        """Say how much is left; most that ever was is taken for all there is."""
        total = max(left, self.total or 0.0)
        self.reach(total - left, total)

    def _show(self) -> None:
        """Show what has changed."""


class _Bar(Gauge):
    """A line on a terminal."""

    def __init__(self, text: str, progress: Progress) -> None:
        super().__init__(text)
        self._progress = progress
        self._task: TaskID = progress.add_task(escape(text), total=None)

    def _show(self) -> None:
        self._progress.update(
            self._task, description=escape(self.text), completed=self.done, total=self.total
        )


@contextmanager
def gauge(text: str, quiet: bool) -> Iterator[Gauge]:
    """Show on a terminal how far something is, as long as this is entered.

    Standard output is left alone unless it is a terminal, too: then its lines pass above the bar.
    """
    if quiet or not sys.stderr.isatty():
        yield Gauge(text)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
    )
    with shown:
        yield _Bar(text, shown)


def poll(check: Callable[[], bool], seconds: float) -> bool:
    """Look until something is done, or for so many seconds; return whether it is."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
