"""Interfaces between a channel and its queues: abstract classes, no behaviour.

They are abstract classes and not traits: interpreted code (tests, embedders) may subclass them
also when they are compiled, which mypyc does not allow for traits. Everything here is called on the
event loop's thread. Methods that are not coroutines neither block nor raise for what a peer did.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from headrace_broker.flow.gate import Gate
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun, Publish, Publisher
from headrace_broker.runtime.contract.attachment import Attachment as Attachment
from headrace_broker.runtime.contract.connection_info import ConnectionControl as ConnectionControl
from headrace_broker.runtime.contract.connection_info import ConnectionInfo as ConnectionInfo
from headrace_broker.runtime.contract.pending_confirm import PendingConfirm as PendingConfirm

ACCEPT: Final = 1  # settled for good
RELEASE: Final = 2  # back to the queue at its old position, to be delivered again
REJECT: Final = 3  # refused: dead-lettered or dropped
MODIFY_FAILED: Final = 4  # as RELEASE, counted as a failed delivery
GET_CONSUMER: Final = 0  # the consumer number of `QueueClient.get`


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyListener:
    """Receiver of direct replies."""

    @abstractmethod
    def on_reply(self, publish: Publish) -> None:
        """Take a message, or drop it where there is no room; nothing may block."""


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueListener:
    """Events of queues for a channel, many times per loop turn; a listener must not block.

    One that publishes, or consumes, nothing leaves out what it does not hear.
    """

    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """All publishes that were handed over with these pending confirms are applied by the queue.

        Each call of `QueueClient.publish` with a pending confirm is answered once, here, in
        `on_rejected` or in `on_deferred`.
        """
        raise AssertionError("it publishes nothing")

    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """As `on_confirmed`, but at least one publish of each pending confirm was refused for good.

        `PendingConfirm.refused` says which.
        """
        raise AssertionError("it publishes nothing")

    def on_deferred(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        """As `on_confirmed`, but the queue holds too much: of each ticket some are not complete.

        `PendingConfirm.holds` says which; others may have been refused. Only for patient tickets.
        """
        raise AssertionError("no pending confirm is patient")

    def on_completed(
        self, client: QueueClient, pending_confirms: list[PendingConfirm], over: int
    ) -> None:
        """The queue has completed publishes of these pending confirms that were in `on_deferred`.

        `PendingConfirm.freed` says which need not wait for others; of `over` pending confirms
        nothing is deferred any more.
        """
        raise AssertionError("no pending confirm is patient")

    def on_unreachable(self, client: QueueClient, text: str) -> None:
        """Publishes wait, and no leader can be reached, as `text` says; by default they wait on."""

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        """Messages for consumer `run.consumer`; may come before `QueueClient.attach` returns."""
        raise AssertionError("it consumes nothing")

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        """A consumer ended unasked: queue deleted or its node lost. Its unsettled are void."""
        raise AssertionError("it consumes nothing")

    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        """A consumer ended because it held a delivery for too long; its unsettled went back."""
        raise AssertionError("it consumes nothing")

    def on_writable(self, client: QueueClient) -> None:
        """The queue is below its soft limit, which `QueueClient.publish` reported, again.

        The caller is in the middle of something: what is to be published waits for its own turn.
        """
        raise AssertionError("it publishes nothing")


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueClient:
    """One channel's conversation with one queue, wherever the queue's leader is."""

    queue: Queue  # the queue's definition; `queue.group` is its identity
    gate: Gate  # where publishes of this node wait for room in the queue

    @abstractmethod
    def publish(self, publishes: list[Publish], pending_confirm: PendingConfirm | None) -> bool:
        """Hand over publishes, in order, a number each of the ticket; they gather until `flush`.

        Returns False while the queue is above its soft limit for this client: too many calls, or
        bytes, are not applied. The publishes are taken all the same; the channel is given no
        credit until `QueueListener.on_writable`.
        """

    @abstractmethod
    def publish_named(
        self,
        publishes: list[Publish],
        pending_confirm: PendingConfirm | None,
        publisher: Publisher,
        sequences: list[int],
    ) -> bool:
        """As `publish`, of what its publisher has numbered: repetitions are dropped and confirmed.

        None is immediate, and the client has no other publishes. Sequences ascend from 1, from call
        to call too, maybe with gaps.
        """

    @abstractmethod
    def publish_whole(self, publishes: list[Publish], pending_confirm: PendingConfirm) -> bool:
        """Send publishes in one command, after all that gathered: the queue has all or nothing.

        None is immediate; they have at most `tx_bytes_max` bytes. Returns as `publish`.
        """

    @abstractmethod
    def settle_whole(self, settles: list[tuple[int, int, int, int]]) -> None:
        """Send settles, TX_OPERATIONS_MAX at most, in one command after all that gathered."""

    @abstractmethod
    async def applied(self) -> None:
        """Wait until all that was sent is answered, or the queue is gone, or this is closed.

        Raises AmqpError: INTERNAL_ERROR, it did not answer within REQUEST_SECONDS_MAX.
        """

    @abstractmethod
    def flush(self) -> None:
        """Send what gathered; called at the end of each received chunk that touched this client."""

    @abstractmethod
    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        """Settle deliveries `first` to `last` of a consumer; gathers until `flush`.

        The operation is ACCEPT, RELEASE, REJECT or MODIFY_FAILED.
        """

    @abstractmethod
    async def attach(self, consumer: int, attachment: Attachment) -> None:
        """Start a consumer, under a number of 1 or more that is never used twice.

        Raises AmqpError: ACCESS_REFUSED exclusive use conflicts, NOT_FOUND the queue is gone.
        """

    @abstractmethod
    def set_prefetch(self, prefetches: list[tuple[int, int]]) -> bool:
        """Change how many deliveries running consumers, by number, may have unsettled, soon.

        What a consumer has beyond a lower number stays with it until it is settled. Returns False
        when nothing changes, for a node with a replica is too old to know how.
        """

    @abstractmethod
    async def cancel(self, consumer: int) -> None:
        """End a consumer: no deliveries once this returns; its unsettled ones stay unsettled."""

    @abstractmethod
    async def get(self, message_id: int = 0) -> tuple[DeliveryRun, int] | None:
        """Take a message, the first for id 0; return its run and ready ones left, or None."""

    @abstractmethod
    async def purge(self) -> int:
        """Drop all ready messages and return how many there were."""

    @abstractmethod
    async def remove(self, message_ids: list[int]) -> int:
        """Drop waiting messages by their ids and return how many of them there were.

        Settles that were handed over before are applied when this returns.
        """

    @abstractmethod
    def consumed(self, consumer: int, byte_count: int) -> None:
        """Deliveries of `byte_count` left for the socket: opens the delivery byte window again.

        Bytes of bodies are counted by `codecs.batch.body_bytes` at both ends, so that the window
        never drifts.
        """

    def abandon(self) -> list[PendingConfirm]:
        """End the session at once; return its unconfirmed pending confirms."""
        raise AssertionError("only publishes of clients are given up")

    @abstractmethod
    def close(self) -> None:
        """End the session: its consumers end and everything unsettled goes back to the queue.

        Publishes that were handed over are still delivered, without any notification. What
        gathered was flushed before.
        """
