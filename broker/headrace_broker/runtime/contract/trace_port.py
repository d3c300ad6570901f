"""Events of single messages for tracing; unused unless it is configured.

A process is one node, so there is one switch: the path of messages looks at it once a batch, and
objects need not hand a tracer down to each other.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.runtime.contract.queue_log import QueueLog


@mypyc_attr(allow_interpreted_subclasses=True)
class Tracer:
    """Follows messages that carry a trace context. Nothing of it raises."""

    @abstractmethod
    def now_ns(self) -> int:
        """Return Unix time in nanoseconds."""

    @abstractmethod
    def routed(
        self, publishes: list[Publish], vhost: str, queues: tuple[Queue, ...], began_ns: int
    ) -> None:
        """A gateway has handed publishes of one route to their queues."""

    @abstractmethod
    def handed(self, session: int, first: i64, publishes: list[Publish], queue: Queue) -> None:
        """A session has taken publishes, which it numbers from `first` on."""

    @abstractmethod
    def applied(self, session: int, last: i64) -> None:
        """The queue has a session's publishes up to `last`, or refused them."""

    @abstractmethod
    def taken(self, queue: Queue, messages: list[Acquired], log: QueueLog) -> None:
        """A queue led here gives messages to a consumer."""

    @abstractmethod
    def delivered(self, session: int, run: DeliveryRun, queue: Queue) -> None:
        """A session has deliveries for its channel, in the channel's numbers."""

    @abstractmethod
    def settled(
        self, session: int, consumer: int, operation: int, first: int, last: int, command: i64
    ) -> None:
        """A channel settles deliveries; control command `command` tells the queue."""

    @abstractmethod
    def answered(self, session: int, command: i64) -> None:
        """The queue has applied control commands up to `command`."""

    @abstractmethod
    def closed(self, session: int) -> None:
        """A session is over."""


@final
class TraceSwitch:
    """Switch of message tracing.

    Attributes:
        tracer: the tracer, None for none.
    """

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


TRACING: Final = TraceSwitch()
