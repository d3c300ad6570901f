"""Consumers of a queue: credit, and the messages that they have unsettled."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired

ATTACHED: Final = 1
DETACHED: Final = 2  # its node is suspected; may attach again
CANCELLED: Final = 3  # gets no more; stays while it has unsettled messages
GETTER: Final = 4  # consumer 0, holder of what GET acquired; never gets a delivery

GET_CONSUMER: Final = 0


@final
class Consumer:
    """A receiver of deliveries, which are numbered 1, 2, 3 and so on."""

    def __init__(self, session: i64, number: i64) -> None:
        self.session = session  # id of its session
        self.number = number  # in the session, from 1; GET_CONSUMER holds what GET acquired
        self.tag = b""  # for listings
        self.prefetch: i64 = 0  # most unsettled messages it may have
        self.exclusive = False  # no other consumer may attach
        # ATTACHED, DETACHED, CANCELLED or GETTER
        self.state: i64 = GETTER if number == GET_CONSUMER else CANCELLED
        self.next_delivery: i64 = 1  # number of its next delivery; goes on after a detachment
        self.unsettled: dict[int, Acquired] = {}  # delivery number -> message, ascending
        self.waiting = False  # has its place in the rotation
        self.fresh: list[Acquired] = []  # that the current command acquired for it
        self.filtered = False  # gets only what ACQUIRE names; never stands in the rotation
        self.priority: i64 = 0  # those with a higher one are served first
        self.prefetch_bytes: i64 = 0  # most bytes unsettled (but for one message), 0 for any
        self.byte_count: i64 = 0  # of the bodies that it has unsettled
        self.timeout_ms: i64 = 0  # most time that a delivery may stay unsettled, 0 for the queue's
        self.arrival: i64 = 0  # number of its attachment; decides who becomes the active one
        self.places: list[tuple[int, bytes]] = []  # groups that are its own, see `groups`; a heap

    def credit(self) -> i64:
        """Return how many messages it may get now, 0 or more."""
        if self.state != ATTACHED or (self.byte_count >= self.prefetch_bytes > 0):
            return 0
        return max(self.prefetch - len(self.unsettled) - len(self.fresh), 0)


@final
class ConsumerInfo:
    """A consumer for listings; see `Consumer` for the fields."""

    def __init__(self, consumer: Consumer) -> None:
        self.session = consumer.session
        self.number = consumer.number
        self.tag = consumer.tag
        self.prefetch = consumer.prefetch
        self.unsettled_count: i64 = len(consumer.unsettled)
        self.priority = consumer.priority
        self.filtered = consumer.filtered
        self.exclusive = consumer.exclusive
        self.attached = consumer.state == ATTACHED
