"""Virtual time, and the threads of simulated processes that run in it, one at a time.

A thread is a greenlet: production code blocks in it as it would in a thread of the system, compiled
or not, and only where it calls what `stdlib` stands in for. Everything happens in one thread of the
system, in an order that the seed alone decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import sys
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, final

from greenlet import getcurrent, greenlet

NS: Final = 1_000_000_000  # nanoseconds of a second
MS: Final = 1_000_000
US: Final = 1000


class SimulationError(Exception):
    """A run found an invariant broken; the text says which."""


class Runnable(Protocol):
    """A thread, as the world sees it."""

    loop: Any  # that runs in it, None for none
    context: greenlet
    turn: int  # that it waits for

    def resume(self, turn: int) -> None:
        """Go on, if this turn is still waited for; a negative one says that the time is over."""


@final
class Trace:
    """Events of a run: their digest, and their text where somebody reads it."""

    def __init__(self, world: World, show: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._world = world
        self._digest = hashlib.sha256()
        self._show = show

    def note(self, who: str, text: str) -> None:
        """Note an event of a process, or of the world (empty name)."""
        self.count += 1
        line = f"{self._world.now_ns / NS:12.6f} {who:4} {text}"
        self._digest.update(line.encode() + b"\n")
        if self._show is not None:
            self._show(line)

    def digest(self) -> str:
        """Return the digest of all events so far."""
        return self._digest.hexdigest()


@final
class World:
    """Clock and schedule of everything that is simulated."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.rng = Random(seed)  # noqa: S311  (a simulation)
        self.now_ns = 0
        self.trace = Trace(self, show)
        self.thread: Runnable | None = None  # that runs now, None for the world itself
        self.turns = 0  # actions run
        self.dead: list[object] = []  # of crashed processes: nothing of theirs is unwound
        self._loop: Any = None  # that asyncio takes for the one that runs
        self._until_ns = 0
        self.hub = getcurrent()  # where the world itself runs
        # time, number, and what happens then: a function with arguments, or a turn of a thread
        self._queue: list[tuple[int, int, Callable[..., object] | None, Any, int]] = []
        self._number = 0
        self._stopped = False

    def at(self, delay_ns: int, action: Callable[..., object], *args: Any) -> None:
        """Call a function after a delay; those of one moment in the order of these calls."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ns + delay_ns, self._number, action, args, 0))

    def resume_at(self, delay_ns: int, thread: Runnable, turn: int) -> None:
        """Go on with a turn of a thread after a delay; positive where it is woken."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ns + delay_ns, self._number, None, thread, turn))

    def run(self, seconds: float) -> None:
        """Let time pass, or until `stop` is called."""
        queue = self._queue
        until = self._until_ns = self.now_ns + int(seconds * NS)
        self._stopped = False
        pop = heapq.heappop
        while queue and queue[0][0] <= until and not self._stopped:
            due, _, action, subject, turn = pop(queue)
            if action is None:
                if turn != subject.turn and -turn != subject.turn:
                    continue  # the thread was woken before its time was over
                self.now_ns = due
                self.turns += 1
                subject.resume(turn)
            else:
                self.now_ns = due
                self.turns += 1
                action(*subject)
        if not self._stopped:
            self.now_ns = until

    def stop(self) -> None:
        """End the call of `run` after the action at hand."""
        self._stopped = True

    def skip(self, delay_ns: int) -> bool:
        """Let time pass at once, if nothing else happens meanwhile; return whether it has."""
        due = self.now_ns + delay_ns
        if self._stopped or due > self._until_ns or (self._queue and self._queue[0][0] <= due):
            return False
        self.now_ns = due
        return True

    def enter(self, thread: Runnable, woken: bool) -> None:
        """Run a thread until it blocks again."""
        self.thread = thread
        self.use(thread.loop)
        try:
            thread.context.switch(woken)
        finally:
            self.thread = None

    def use(self, loop: Any) -> None:
        """Let asyncio take a loop for the one that runs."""
        if loop is not self._loop:
            self._loop = loop
            asyncio._set_running_loop(loop)  # noqa: SLF001  (asyncio's own name for it)
            if loop is not None:
                sys.set_asyncgen_hooks(loop.note_generator, loop.end_generator)

    def leave(self) -> bool:
        """Go back from a thread to the world, until the thread is entered again."""
        return bool(self.hub.switch())
