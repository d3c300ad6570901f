"""Messages as publishers and consumers saw them, and what that must not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from headrace_simulation.cluster.hosts import number_of
from headrace_simulation.cluster.world import NS, World

if TYPE_CHECKING:
    from headrace_simulation.cluster.process import Process

UNKNOWN: Final = 0  # handed over, and nothing heard of it
CONFIRMED: Final = 1
REFUSED: Final = 2
BATCH_MAX: Final = 6  # messages that are published as one
EARLY_NS: Final = NS // 2  # how much too early a delayed message may come


@final
class Message:
    """One message, by its body."""

    __slots__ = (
        *("accepted_ns", "accepts", "body", "deliveries", "due_ns", "fails", "first"),
        *("published_ns", "queue", "rejected", "state"),
    )

    def __init__(self, queue: str, body: bytes, published_ns: int = 0) -> None:
        self.published_ns = published_ns
        self.due_ns = published_ns  # before which it is not delivered
        self.queue = queue
        self.body = body
        self.state = UNKNOWN
        self.deliveries = 0
        self.first = ""  # who was given it as not delivered before
        self.fails = 0  # deliveries that are known to be counted as failed
        self.rejected = False  # by a consumer, which may have come too late
        self.accepts = 0  # consumers that said that they accept it, in time or not
        self.accepted_ns = 0  # when its acceptance was known to be applied


@final
class Attached:
    """A consumer that gets deliveries."""

    def __init__(self, queue: str, process: Process, history: History) -> None:
        self.queue = queue
        self.process = process
        self.node = number_of(process.name)
        self._history = history
        self.got()

    def got(self) -> None:
        """Note that it was given something, or has begun."""
        self.got_ns = self.process.world.now_ns
        self.others = self._history.delivered_of.get(self.queue, 0)


@final
class History:
    """Everything that happened to messages."""

    def __init__(self, world: World) -> None:
        self.messages: dict[bytes, Message] = {}
        self.deleted: set[str] = set()  # queues that were deleted, by name and incarnation
        self.targets: dict[str, str] = {}  # queue to which another one dead-letters, by name
        self.ttl_ns: dict[str, int] = {}  # how old a queue's messages may be, by name
        self.lengths: dict[str, int] = {}  # how many messages a queue keeps at most, by name
        self.tries: dict[str, int] = {}  # failed deliveries after which one comes again, by name
        self.watermarks: dict[str, int] = {}  # messages above which one defers confirms, by name
        self.unsettled: dict[str, int] = {}  # those confirmed that nobody accepted yet, by name
        # accepted by a consumer, and not answered to the publisher: since when
        self.unanswered: dict[bytes, int] = {}
        self.delayed: set[str] = set()  # queues whose messages have delays, by name
        self.moved_ns = -1 << 62  # when somebody asked for other leaders or members last
        self.confirms = 0
        self.deliveries = 0
        self.backups = 0  # messages in backups that came to their end
        self.redeliveries = 0
        self.confirmed_ns: dict[str, int] = {}  # when a queue confirmed something last
        self.delivered_of: dict[str, int] = {}  # deliveries by queue
        self.attached: dict[str, Attached] = {}  # consumers by name, also those that died
        self.problem = ""  # the first thing that must not be
        self._world = world
        self._last: dict[tuple[str, str], int] = {}
        self._dead: set[bytes] = set()  # that came from the queue that they were dead-lettered to

    def violated(self, text: str) -> None:
        """Note what must not be, and end the run; production would take an error for its own."""
        self.problem = self.problem or text
        self._world.stop()

    def moved(self) -> None:
        """Note that somebody asks, or has asked, for other leaders or members."""
        self.moved_ns = self._world.now_ns

    def published(self, queue: str, body: bytes, delay_ms: int = 0) -> None:
        """Note a message that is handed over."""
        self.messages[body] = message = Message(queue, body, self._world.now_ns)
        message.due_ns = self._world.now_ns + delay_ms * (NS // 1000)

    def confirmed(self, body: bytes) -> None:
        """Note a confirm."""
        message = self.messages[body]
        if message.state == CONFIRMED:
            self.violated(f"{body!r} was confirmed twice")
        message.state = CONFIRMED
        self.unanswered.pop(body, None)
        self._world.trace.note("", f"confirmed {body[:24]!r}")
        self.confirms += 1
        self.confirmed_ns[message.queue] = self._world.now_ns
        if not message.accepts:
            unsettled = self.unsettled.get(message.queue, 0) + 1
            self.unsettled[message.queue] = unsettled
            if unsettled > self.watermarks.get(message.queue, unsettled) + BATCH_MAX:
                self.violated(f"{message.queue} confirmed {unsettled} messages that it has")

    def refused(self, body: bytes) -> None:
        """Note that a queue refused a message."""
        self.messages[body].state = REFUSED

    def delivered(
        self, queue: str, consumer: str, since_ns: int, body: bytes, redelivered: bool
    ) -> None:
        """Note a delivery.

        Args:
            queue: whose consumer was given it.
            consumer: unique.
            since_ns: when it began.
            body: of the message.
            redelivered: whether it was marked as perhaps delivered before.

        It must have been published there, not accepted before the consumer began, come unmarked
        once only, and in order.
        """
        self.deliveries += 1
        self.delivered_of[queue] = self.delivered_of.get(queue, 0) + 1
        if consumer in self.attached:
            self.attached[consumer].got()
        self.redeliveries += redelivered
        self._world.trace.note("", f"{consumer} got {body[:24]!r} {redelivered}")
        origin = self.messages.get(body)
        if origin is None:
            self.violated(f"{body!r} was delivered from {queue}, and never published")
            return
        if origin.queue != queue:
            self._dead_lettered(queue, origin)
            return
        message = origin
        if message.state == REFUSED:
            self.violated(f"{body!r} was refused, and delivered from {queue}")
        if message.accepted_ns and message.accepted_ns < since_ns:
            at = message.accepted_ns / NS
            self.violated(f"{body!r} of {queue} was accepted at {at:.3f}, and comes again")
        age_ns = self._world.now_ns - message.published_ns
        if age_ns > self.ttl_ns.get(queue, age_ns):
            self.violated(f"{body!r} came from {queue} after {age_ns / NS:.1f} s")
        if message.fails > self.tries.get(queue, message.fails):
            self.violated(f"{body!r} of {queue} comes again after {message.fails} that failed")
        if self._world.now_ns + EARLY_NS < message.due_ns:
            early_s = (message.due_ns - self._world.now_ns) / NS
            self.violated(f"{body!r} of {queue} came {early_s:.1f} s before its time")
        message.deliveries += 1
        if redelivered:
            return
        if message.first:
            self.violated(f"{body!r} of {queue} came to {consumer} unmarked, after {message.first}")
        message.first = consumer
        if queue not in self.delayed:
            self._check_order(consumer, body)

    def leased(self, queue: str, body: bytes, asked_ns: int, returns: bool) -> None:
        """Note a message of a new lease.

        Args:
            queue: whose it is.
            body: of the message.
            asked_ns: when the lease was asked for.
            returns: whether it may have been leased before, and out of order.
        """
        self.deliveries += 1
        self._world.trace.note("", f"leased {body[:24]!r}")
        message = self.messages.get(body)
        if message is None or message.queue != queue or message.state == REFUSED:
            self.violated(f"{body!r} was leased from {queue}, and never published there")
            return
        if message.accepted_ns and message.accepted_ns < asked_ns:
            self.violated(f"{body!r} of {queue} was settled, and is leased again")
        if not returns:
            if message.deliveries:
                self.violated(f"{body!r} of {queue} is in two leases")
            self._check_order(queue, body)
        message.deliveries += 1

    def _dead_lettered(self, queue: str, origin: Message) -> None:
        """Note a delivery of what its first queue has given up: once at least."""
        if self.targets.get(origin.queue) != queue:
            self.violated(f"{origin.body!r} of {origin.queue} was delivered from {queue}")
        if origin.accepted_ns:
            self.violated(f"{origin.body!r} of {origin.queue} was accepted, and dead-lettered")
        if not origin.rejected and origin.queue not in self.tries:
            self.violated(f"{origin.body!r} of {origin.queue} was dead-lettered, and not rejected")
        self._dead.add(origin.body)

    def _check_order(self, consumer: str, body: bytes) -> None:
        """A consumer is given each publisher's messages in their order."""
        publisher, _, number = body.decode().split(" ")[0].rpartition(".")
        last = self._last.get((consumer, publisher), 0)
        if int(number) <= last:
            self.violated(f"{consumer} was given {body!r} after number {last}")
        self._last[consumer, publisher] = int(number)

    def rejected(self, queue: str, body: bytes) -> None:
        """Note that a consumer rejects a message, which its queue then gives up."""
        message = self.messages[body]
        if message.queue == queue:
            message.rejected = True

    def accepts(self, queue: str, body: bytes) -> None:
        """Note that a consumer says that it accepts a message."""
        message = self.messages[body]
        if message.queue == queue:
            if not message.accepts and message.state == CONFIRMED:
                self.unsettled[queue] -= 1
            message.accepts += 1

    def accepts_not(self, queue: str, body: bytes) -> None:
        """Note that a message that was to be accepted has gone back before."""
        message = self.messages[body]
        if message.queue == queue:
            message.accepts -= 1

    def accepted(self, queue: str, body: bytes) -> None:
        """Note that an acceptance is known to be applied."""
        message = self.messages[body]
        if message.queue == queue:
            message.accepted_ns = message.accepted_ns or self._world.now_ns
            if message.state == UNKNOWN:
                self.unanswered.setdefault(body, self._world.now_ns)

    def failed(self, queue: str, body: bytes) -> None:
        """Note that a failed delivery is known to be counted."""
        message = self.messages[body]
        if message.queue == queue:
            message.fails += 1

    def lost(self) -> list[Message]:
        """Return what is missing, once all queues are empty.

        It is each message that was confirmed or delivered and that no consumer said it accepts,
        and each that was rejected and has not come where it was to be dead-lettered.
        """
        return [
            message
            for message in self.messages.values()
            if not message.accepts
            and (message.state == CONFIRMED or message.deliveries)
            and message.body not in self._dead
            and message.queue not in self.deleted
            and message.queue not in self.ttl_ns
            and message.queue not in self.lengths
        ]

    def present(self, queue: str) -> list[Message]:
        """Return the messages that a queue must have now."""
        return [
            message
            for message in self.messages.values()
            if message.queue == queue
            and message.state == CONFIRMED
            and not message.accepts
            and not message.rejected
        ]

    def backed_up(self, backup: str, queue: str, body: bytes, asked_ns: int) -> None:
        """Note a message in a backup of a queue that was asked for then."""
        message = self.messages.get(body)
        if message is None or message.queue != queue or message.state == REFUSED:
            self.violated(f"{backup} has {body!r}, which was not published there")
        elif message.accepted_ns and message.accepted_ns < asked_ns:
            self.violated(f"{backup} has {body!r}, which was accepted before")
        self.backups += 1

    def check_lengths(self) -> None:
        """A queue that nobody consumed from had its newest messages, and not too many."""
        for queue, most in self.lengths.items():
            kept: dict[str, int] = {}  # by publisher, the first message that was there
            came = [each for each in self.messages.values() if each.queue == queue]
            count = sum(1 for each in came if each.deliveries)
            if not 0 < count <= most:
                self.violated(f"{queue} had {count} messages, and keeps {most}")
            for each in came:  # in order
                publisher, _, number = each.body.decode().split(" ")[0].rpartition(".")
                if each.deliveries:
                    kept.setdefault(publisher, int(number))
                elif publisher in kept and each.state == CONFIRMED:
                    self.violated(f"{queue} dropped {each.body!r}, and kept an older one")
