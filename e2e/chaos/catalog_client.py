"""A client that declares, deletes, binds, unbinds and looks, through one node only.

Whether a thing exists is a register that holds true or false: declare and bind write true, delete
and unbind write false, passive declares and mandatory publishes read.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from e2e.chaos.client import (
    ANSWER_SECONDS,
    BROKEN,
    ChaosClient,
    ChaosWorker,
    RefusedError,
    describe,
)
from e2e.chaos.cluster import ChaosNode
from e2e.chaos.history import History, Operation
from pamqp import commands

NOT_FOUND: Final = 404
RETRY_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.01
READ_RATE: Final = 0.6
SINK_QUEUE: Final = "chaos-sink"
SINK_EXCHANGE: Final = "chaos-exchange"


class Thing:
    """One thing of the catalog, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def write(self, client: ChaosClient, exists: bool) -> None:
        """Create or remove it."""

    @abstractmethod
    def read(self, client: ChaosClient) -> bool:
        """Look whether it is there.

        Raises:
            RefusedError: it is not there, if the code is NOT_FOUND.
        """


class QueueThing(Thing):
    """A quorum queue."""

    def write(self, client: ChaosClient, exists: bool) -> None:
        """Declare or delete."""
        if exists:
            declare = commands.Queue.Declare(0, self.name, durable=True)
            client.call(declare, commands.Queue.DeclareOk)
        else:
            client.call(commands.Queue.Delete(0, self.name), commands.Queue.DeleteOk)

    def read(self, client: ChaosClient) -> bool:
        """Passive declare."""
        look = commands.Queue.Declare(0, self.name, passive=True)
        client.call(look, commands.Queue.DeclareOk)
        return True


class ExchangeThing(Thing):
    """An exchange."""

    def write(self, client: ChaosClient, exists: bool) -> None:
        """Declare or delete."""
        if exists:
            declare = commands.Exchange.Declare(0, self.name, "fanout", durable=True)
            client.call(declare, commands.Exchange.DeclareOk)
        else:
            client.call(commands.Exchange.Delete(0, self.name), commands.Exchange.DeleteOk)

    def read(self, client: ChaosClient) -> bool:
        """Passive declare."""
        look = commands.Exchange.Declare(0, self.name, passive=True)
        client.call(look, commands.Exchange.DeclareOk)
        return True


class BindingThing(Thing):
    """A binding of SINK_QUEUE to SINK_EXCHANGE, whose routing key is the name."""

    def write(self, client: ChaosClient, exists: bool) -> None:
        """Bind or unbind."""
        if exists:
            bind = commands.Queue.Bind(0, SINK_QUEUE, SINK_EXCHANGE, self.name)
            client.call(bind, commands.Queue.BindOk)
        else:
            unbind = commands.Queue.Unbind(0, SINK_QUEUE, SINK_EXCHANGE, self.name)
            client.call(unbind, commands.Queue.UnbindOk)

    def read(self, client: ChaosClient) -> bool:
        """Publish as mandatory: unbound keys are returned before the confirm."""
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        client.publish(self.name, b"bound?", SINK_EXCHANGE, mandatory=True)
        returned = False
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            value = client.next(max(0.0, deadline - time.monotonic()))
            if isinstance(value, commands.Basic.Return):
                returned = True
            elif isinstance(value, commands.Basic.Ack):
                return not returned
            elif value is None or isinstance(value, commands.Basic.Nack):
                raise TimeoutError(f"{client.node} does not say whether {self.name} is bound")


KINDS: Final = (QueueThing, ExchangeThing, BindingThing)


class Names:
    """Which things are played with now: others after a while, so that histories stay short.

    Args:
        seconds: how long each lot of names is in use.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._start = clock()

    def current(self) -> list[Thing]:
        """Return one thing of each kind."""
        lot = int((self._clock() - self._start) / self._seconds)
        return [kind(f"chaos-{kind.__name__[:-5].lower()}-{lot}") for kind in KINDS]


class CatalogClient(ChaosWorker):
    """Works through one node until told to stop; its operations go into the history."""

    def __init__(
        self, name: str, node: ChaosNode, names: Names, history: History, seed: int
    ) -> None:
        super().__init__(name)
        self._node = node
        self._names = names
        self._history = history
        self._random = random.Random(seed)

    def work(self) -> None:
        """Do operations over as many connections as it takes."""
        while not self._halt.is_set():
            try:
                with ChaosClient(self._node) as client:
                    while not self._halt.is_set():
                        self._one_operation(client)
                        self._halt.wait(PAUSE_SECONDS * self._random.random())
            except BROKEN as error:
                self.errors[describe(error)] += 1
                self._halt.wait(RETRY_SECONDS)

    def _one_operation(self, client: ChaosClient) -> None:
        thing = self._random.choice(self._names.current())
        if self._random.random() < READ_RATE:
            self._read(client, thing)
        else:
            self._write(client, thing, exists=self._random.random() < 0.5)

    def _read(self, client: ChaosClient, thing: Thing) -> None:
        invoked = time.monotonic()
        try:
            value = thing.read(client)
        except RefusedError as error:
            if error.code != NOT_FOUND or not error.channel_only:
                raise
            value = False
        completed = time.monotonic()
        self._record(client, thing, False, value, invoked, completed)
        if not value and not isinstance(thing, BindingThing):
            client.reopen()

    def _write(self, client: ChaosClient, thing: Thing, exists: bool) -> None:
        invoked = time.monotonic()
        completed: float | None = None
        try:
            thing.write(client, exists)
            completed = time.monotonic()
        finally:
            self._record(client, thing, True, exists, invoked, completed)

    def _record(
        self,
        client: ChaosClient,
        thing: Thing,
        write: bool,
        value: bool,
        invoked: float,
        completed: float | None,
    ) -> None:
        self._history.operations.append(
            Operation(
                thing.name,
                client.node,
                write,
                value,
                invoked,
                completed,
                routing=isinstance(thing, BindingThing),
            )
        )
