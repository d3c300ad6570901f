"""A PySyncObj node under load: a process of its own, told what to do by a pipe.

It is given the best chances: one thread drives it, so that nothing competes for the interpreter,
and the command is applied by a method that does nothing.

PySyncObj splits an entry that is longer than `appendEntriesBatchSizeBytes`, 64 KiB by default, and
marks the last part by the command's length. But it is the pickled entry that is split, which is
longer: random bytes grow by half each time they are pickled. So a command of 64 KiB of random bytes
raises an exception out of every follower's tick before it is complete. With the larger
`BATCH_BYTES` nothing is split.
"""

from __future__ import annotations

import logging
import os
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from replication.load import Load, Meter, Outcome
from replication.trio import Place

TICK_SECONDS: Final = 0.05  # PySyncObj's own default; it returns as soon as there is something
BATCH_BYTES: Final = 1 << 20
JOURNAL: Final = "journal"


class Replica(SyncObj):  # type: ignore[misc]  # the package has no types
    """A replicated object whose one command is thrown away."""

    @replicated  # type: ignore[untyped-decorator]
    def put(self, data: bytes) -> None:
        """Take a command."""


class _Truncations(logging.Handler):
    """Counts how often PySyncObj says that it removed entries which it had applied."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("truncating already-applied"):
            self.count += 1


class LoadedReplica:
    """A replica that keeps a number of its own commands in flight while it leads.

    Args:
        place: where this node lives.
        batches: PySyncObj's `appendEntriesUseBatch`, true unless it is told otherwise: then
            entries are sent with the next of ten rounds a second. Without it they are sent at once.
    """

    def __init__(self, place: Place, batches: bool) -> None:
        peers = place.peers
        own = peers.pop(place.node)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=str(place.data / JOURNAL),
            appendEntriesUseBatch=batches,
            appendEntriesBatchSizeBytes=BATCH_BYTES,
        )
        self.replica = Replica(own, list(peers.values()), conf)
        self._truncations = _Truncations()
        logger = logging.getLogger("pysyncobj")
        logger.addHandler(self._truncations)
        logger.propagate = False
        self._meter: Meter
        self._in_flight = 0
        self._error: int = FAIL_REASON.SUCCESS

    def lead(self) -> bool:
        """Return whether this node leads, once there is a leader and all nodes are connected."""
        while self.replica.getStatus()["leader"] is None or not self.replica.isReady():
            self.replica.doTick(TICK_SECONDS)
        return bool(self.replica.getStatus()["leader"] == self.replica.selfNode)

    def load(self, load: Load) -> Outcome:
        """Put a load on the group; this node must lead it.

        Raises:
            RuntimeError: a command failed.
        """
        command = os.urandom(load.size)
        self._meter = Meter(load, perf_counter())
        while not self._meter.over(perf_counter()):
            while self._in_flight < load.window:
                self._propose(command)
            self._tick_loaded()
        while self._in_flight:
            self._tick_loaded()
        return self._meter.outcome()

    def truncations(self) -> int:
        """Return how often this node removed entries from its log that it had applied."""
        return self._truncations.count

    def tick(self) -> None:
        """Let it work while it is not under load."""
        self.replica.doTick(TICK_SECONDS)

    def _tick_loaded(self) -> None:
        self.replica.doTick(TICK_SECONDS)
        if self._error != FAIL_REASON.SUCCESS:
            raise RuntimeError(f"a command failed with FAIL_REASON {self._error}")

    def _propose(self, command: bytes) -> None:
        proposed = perf_counter()

        def applied(result: object, error: int) -> None:
            self._in_flight -= 1
            if error == FAIL_REASON.SUCCESS:
                self._meter.count(proposed, perf_counter())
            else:
                self._error = error

        self._in_flight += 1
        self.replica.put(command, callback=applied)


def _serve(place: Place, connection: Connection, batches: bool) -> None:
    loaded = LoadedReplica(place, batches)
    while True:
        while not connection.poll(0):
            loaded.tick()
        name, *arguments = connection.recv()
        if name == "stop":
            return
        connection.send(_answer(loaded, name, arguments))


def _answer(loaded: LoadedReplica, name: str, arguments: list[Any]) -> Any:
    try:
        return getattr(loaded, name)(*arguments)
    except Exception as error:  # noqa: BLE001  (outermost: reports it)
        return error


def run_batched(place: Place, connection: Connection) -> None:
    """Be one node as PySyncObj's defaults have it, but for the journal, until told to stop."""
    _serve(place, connection, True)


def run_unbatched(place: Place, connection: Connection) -> None:
    """Be one node that sends each entry at once, until told to stop."""
    _serve(place, connection, False)
