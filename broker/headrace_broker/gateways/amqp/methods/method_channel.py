"""An open channel as handlers of methods see it: its parts, and its operations."""

from __future__ import annotations

from mypy_extensions import i64
from pamqp import base, commands

from headrace_broker.gateways.amqp.messages.channel_confirms import ChannelConfirms
from headrace_broker.gateways.amqp.messages.channel_links import ChannelLinks
from headrace_broker.gateways.amqp.messages.channel_publisher import ChannelPublisher
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.gateways.amqp.messages.delivering import Deliveries
from headrace_broker.gateways.amqp.messages.reply_consumer import ReplyConsumer
from headrace_broker.gateways.amqp.messages.transaction import Transaction
from headrace_broker.gateways.amqp.model.states import CHANNEL_CLOSED, CHANNEL_OPEN
from headrace_broker.gateways.publishing.publish_admission import PublishAdmission
from headrace_broker.gateways.publishing.publish_listener import PublishListener
from headrace_broker.model.reply_code import AmqpError


class ChannelOverError(Exception):
    """A channel has ended while one of its operations waited; there is nothing more to do."""


class MethodChannel(PublishListener):
    """Parts of a channel, and its consumers by tag."""

    def __init__(self, number: i64, output: ConnectionOutput) -> None:
        self.number = number  # 1 to 65535
        self.state: i64 = CHANNEL_CLOSED  # a CHANNEL_* state
        self.output = output
        self._busy = False  # an operation is awaited
        self._cancels: list[str] = []  # tags to tell of once the operation has been answered
        self._make()
        self.admission = PublishAdmission(output.admission, self, self.publisher)
        self.flow = self.admission.flow  # what stops its publishes

    def begin(self) -> None:
        """Make all parts anew: a channel that closed from both sides may be opened again."""
        self._make()
        self.admission.begin(self.publisher)

    def _make(self) -> None:
        self.links = ChannelLinks(self.output, self)  # its sessions
        self.confirms = ChannelConfirms(self.number, self.links.traffic)  # answers to its publishes
        # what waits for tx.commit
        self.transaction = Transaction(self.output.broker, self.output.share)
        # to its client
        self.deliveries = Deliveries(self.number, self.output, self.transaction, self.links.traffic)
        self.consumers: dict[str, Consumer] = {}  # by tag
        self.replies: ReplyConsumer | None = None  # its consumer of direct replies, if it has one
        self.last_queue = ""  # name of the queue that was declared last, "" for none
        self.prefetch: i64 = 0  # for consumers that come, 0 for no limit
        # hands out its publishes
        self.publisher = ChannelPublisher(self.output, self.links, self.confirms, self.transaction)

    @property
    def is_open(self) -> bool:
        """True while it may be used."""
        return self.state == CHANNEL_OPEN

    def send(self, command: base.Frame) -> None:
        """Send a method, unless the channel is closed."""
        if self.state == CHANNEL_OPEN:
            self.output.send(self.number, command)

    def fail(self, error: AmqpError, index: i64) -> None:
        """Close the channel, or for a hard error the connection, for a fault in a method."""
        raise AssertionError("abstract")

    async def catch_up(self) -> None:
        """Wait until this node knows of all that was declared and deleted before.

        Raises:
            AmqpError: the catalog has no quorum.
            ChannelOverError: the channel has ended meanwhile.
        """
        await self.output.broker.catch_up()
        if not self.is_open:
            raise ChannelOverError

    def release(self) -> None:
        """Give back all that the channel has; it has ended."""
        self.deliveries.clear()
        self.transaction.discard()
        self.confirms.discard()
        for consumer in self.consumers.values():
            consumer.stand_down(self.output.broker.standings)
        self.consumers.clear()
        self._cancels.clear()
        self.set_replies(None)
        self.links.close()

    # Consumers

    def set_replies(self, replies: ReplyConsumer | None) -> None:
        """Set the consumer of direct replies, None for none."""
        if self.replies is not None:
            self.replies.close()
        self.replies = replies
        self.publisher.screen.reply_name = "" if replies is None else replies.name

    def forget_consumer(self, consumer: Consumer, event: int) -> None:
        """End a consumer; its unsent deliveries return, or are void when it is lost."""
        consumer.enter(event)
        consumer.stand_down(self.output.broker.standings)
        if consumer.lost:
            consumer.held.clear()
        else:
            self.deliveries.release_held(consumer)
        consumer.link.consumers.pop(int(consumer.number), None)
        self.consumers.pop(consumer.tag, None)

    def notify_cancel(self, consumer: Consumer) -> None:
        """Send basic.cancel for a lost consumer, behind the answer to the last request."""
        if self.output.cancel_notify:
            self._cancels.append(consumer.tag)
            if not self._busy:
                self.tell_cancels()

    def tell_cancels(self) -> None:
        """Send basic.cancel for the consumers that were lost while an operation was awaited."""
        tags, self._cancels = self._cancels, []
        for tag in tags:
            self.send(commands.Basic.Cancel(tag, True))
