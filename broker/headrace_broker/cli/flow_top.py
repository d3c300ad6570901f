"""The live view of `headrace flow top`: a full-screen table that is drawn anew each second."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headrace_broker.cli.flow_view import connections_table, summary

REFRESH_S: Final = 1.0
QUIT_KEYS: Final = frozenset(b"qQ\x03\x1b")
FRAME_LINES: Final = 3  # above the table, and its titles


class Picture(NamedTuple):
    """Last received state."""

    rows: list[dict[str, Any]]  # of GET /api/flow/connections
    lacks: str = ""  # what is missing in it, or why there is nothing, "" for nothing


def draw(picture: Picture, address: str, when: str, size: tuple[int, int]) -> RenderableType:
    """Return a screen of so many columns and lines; `address` and `when` stand in its head."""
    columns, lines = size
    head = Text(f"headrace flow top  {address}  {when}", no_wrap=True, overflow="ellipsis")
    state = Text(f"{summary(picture.rows)}   q quits", style="dim", no_wrap=True)
    if picture.lacks:
        state = Text(picture.lacks, style="red", no_wrap=True, overflow="ellipsis")
    table = connections_table(picture.rows[: max(lines - FRAME_LINES, 1)], columns)
    return Group(head, state, table)


class LiveTop:
    """Shows pictures until somebody quits."""

    def __init__(self, fetch: Callable[[], Picture], address: str, console: Console) -> None:
        self._fetch = fetch  # makes a picture, in a thread of its own so that keys are heard
        self._address = address  # where it comes from, for people
        self._console = console  # that of the terminal
        self._picture = Picture([], "connecting ...")
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def run(self) -> None:
        """Draw until a key of QUIT_KEYS is pressed."""
        with (
            ThreadPoolExecutor(1) as worker,
            _keys(sys.stdin.fileno()) as keys,
            _resizes(self._wake),
            Live(self._drawn(), console=self._console, screen=True, auto_refresh=False) as live,
        ):
            try:
                self._loop(worker, keys, live)
            finally:
                worker.shutdown(wait=False, cancel_futures=True)

    def _loop(self, worker: ThreadPoolExecutor, keys: int, live: Live) -> None:
        pending: Future[Picture] | None = None
        due = time.monotonic()
        while True:
            if pending is None and time.monotonic() >= due:
                due = time.monotonic() + REFRESH_S
                pending = worker.submit(self._fetch)
                pending.add_done_callback(lambda _: self._wake())
            wait = None if pending is not None else max(due - time.monotonic(), 0)
            ready, _, _ = select.select([keys, self._reader], [], [], wait)
            if keys in ready and QUIT_KEYS.intersection(os.read(keys, 64) or b"q"):
                return
            if self._reader in ready:
                os.read(self._reader, 64)
            if pending is not None and pending.done():
                self._picture = pending.result()
                pending = None
            live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        size = self._console.size
        return draw(
            self._picture, self._address, time.strftime("%H:%M:%S"), (size.width, size.height)
        )

    def _wake(self) -> None:
        """Wake the loop: an answer is there, or the window has another size."""
        try:
            os.write(self._writer, b".")
        except BlockingIOError:  # it is awake already
            return


@contextmanager
def _keys(terminal: int) -> Iterator[int]:
    """Read keys one by one, without echo."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _resizes(callback: Callable[[], None]) -> Iterator[None]:
    """Call back when the window's size changes."""

    def changed(_number: int, _frame: FrameType | None) -> None:
        callback()

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
