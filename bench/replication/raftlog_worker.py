"""A node of the replicated log under load: a process of its own, told what to do by a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
from array import array
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final

import uvloop

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import QUEUED
from headrace_raftlog.node.node import NodeOptions, RaftNode
from replication.load import Load, Meter, Outcome
from replication.trio import NODES, Place

RETRY_SECONDS: Final = 0.005  # until a proposal that was refused as BUSY is made again
CREATED_AT_ONCE: Final = 200  # groups created between two turns of the event loop


class IdleHandler:
    """An application without state; it serves any number of groups."""

    def apply(self, entries: list[Entry]) -> None:
        """Take them."""

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        """Take no notice."""

    def quiesced(self) -> None:
        """Take no notice."""

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return nothing: all entries are done with."""
        return b"", array("Q")

    def held(self) -> array[int]:
        """Return nothing: dead entries have no reader."""
        return array("Q")

    def digest(self) -> tuple[str, bytes]:
        """Return nothing: there is no state."""
        return "", b""

    def restore(self, state: bytes) -> None:
        """Take nothing."""


class LoadHandler(IdleHandler):
    """An application that keeps a number of its own commands in flight while it leads.

    Args:
        propose: appends a command; returns its index, or less than 0 when refused.
    """

    def __init__(self, propose: Callable[[bytes], int]) -> None:
        self.serving = False
        self._propose = propose
        self._in_flight: dict[int, float] = {}
        self._meter: Meter | None = None
        self._done: Callable[[], None]
        self._window = 0
        self._command = b""

    def apply(self, entries: list[Entry]) -> None:
        """Count this node's applied proposals and propose as many again."""
        meter = self._meter
        if meter is None:
            return
        now = perf_counter()
        for entry in entries:
            proposed = self._in_flight.pop(entry.index, None)
            if proposed is not None:
                meter.count(proposed, now)
        if not meter.over(now):
            self.fill()
        elif not self._in_flight:
            self._meter = None
            self._done()

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        """Note whether this node leads."""
        self.serving = serving
        if not serving and self._meter is not None:
            raise RuntimeError("the leadership was lost during a measurement; is the machine busy?")

    def begin(self, load: Load, meter: Meter, done: Callable[[], None]) -> None:
        """Start a load; `done` is called when it is over and nothing is in flight."""
        self._command = os.urandom(load.size)
        self._window = load.window
        self._done = done
        self._meter = meter
        self.fill()

    def fill(self) -> None:
        """Propose until the window is full."""
        if self._meter is None:
            return
        in_flight = self._in_flight
        while len(in_flight) < self._window:
            now = perf_counter()
            index = self._propose(self._command)
            assert index != QUEUED, "more is in flight than a group takes at once"
            if index < 0:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self.fill)
                return
            in_flight[index] = now


class RaftlogWorker:
    """Answers the requests of a benchmark.

    Args:
        place: where this node lives.
        options: of the node.
    """

    def __init__(self, place: Place, options: NodeOptions) -> None:
        self.place = place
        self.node = RaftNode(options)
        self._loads: dict[int, LoadHandler] = {}
        self._idle = IdleHandler()

    async def lead(self, first: int, count: int) -> int:
        """Create groups unless they are there; return how many this node leads, about a third."""
        groups = range(first, first + count)
        for group in groups:
            if group in self._loads:
                continue
            handler = LoadHandler(partial(self.node.propose, group))
            self._loads[group] = handler
            self._create(group, handler)
        while not all(self.node.leader(group) for group in groups):
            await asyncio.sleep(0.05)
        own = [group for group in groups if self.node.leader(group) == self.place.node]
        while not all(self._loads[group].serving for group in own):
            await asyncio.sleep(0.05)
        return len(own)

    async def idle(self, first: int, count: int) -> None:
        """Create groups that nothing is asked of; each node leads every third of them."""
        for group in range(first, first + count):
            self._create(group, self._idle)
            if group % CREATED_AT_ONCE == 0:
                await asyncio.sleep(0)
        while not all(self.node.leader(group) for group in range(first, first + count)):
            await asyncio.sleep(0.2)

    async def load(self, first: int, count: int, load: Load) -> Outcome | None:
        """Put a load on those of some groups that this node leads; None if there is none."""
        handlers = [self._loads[group] for group in range(first, first + count)]
        handlers = [handler for handler in handlers if handler.serving]
        if not handlers:
            return None
        over = asyncio.Event()
        left = len(handlers)

        def done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                over.set()

        meter = Meter(load, perf_counter())
        for handler in handlers:
            handler.begin(load, meter, done)
        await over.wait()
        return meter.outcome()

    async def messages(self) -> int:
        """Return how many Raft messages this node sent since its start."""
        return self.node.counters()["raft_messages_sent"]

    def _create(self, group: int, handler: IdleHandler) -> None:
        voters = tuple(self.node.member_of(node) for node in NODES)
        leads = group % len(NODES) == self.place.node - 1
        self.node.create_group(group, voters, (), handler, leads)


async def _serve(place: Place, connection: Connection) -> None:
    options = NodeOptions("bench", place.node, place.peers, str(place.data))
    worker = RaftlogWorker(place, options)
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def failed(error: BaseException) -> None:
        if not failure.done():
            failure.set_exception(error)

    worker.node.on_fatal = failed
    await worker.node.start()
    try:
        await worker.node.wait_formed()
        while True:
            request = await asyncio.to_thread(connection.recv)
            if request[0] == "stop":
                return
            connection.send(await _answer(worker, request, failure))
    finally:
        await worker.node.stop()


async def _answer(
    worker: RaftlogWorker, request: tuple[Any, ...], failure: asyncio.Future[None]
) -> Any:
    """Return what the request gives, or the exception that the node stopped with meanwhile."""
    name, *arguments = request
    task = asyncio.ensure_future(getattr(worker, name)(*arguments))
    await asyncio.wait([task, failure], return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        task.cancel()
        return failure.exception()
    return task.exception() or task.result()


def run(place: Place, connection: Connection) -> None:
    """Be one node until told to stop."""
    logging.getLogger("headrace").setLevel(logging.ERROR)  # peers that stop are no news
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(place, connection))
