"""A channel's deliveries: delivery tags, limits, deferred ones, and settlement."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.codecs.batch import body_bytes, encode_batch
from headrace_broker.codecs.delivery_encoder import encode_deliveries, encode_get_ok
from headrace_broker.gateways.amqp.messages.connection_output import (
    ConnectionOutput,
    DeliverySource,
)
from headrace_broker.gateways.amqp.messages.consumer import Consumer, ConsumerLink
from headrace_broker.gateways.amqp.messages.transaction import Transaction
from headrace_broker.gateways.amqp.messages.unsettled import ALL_HELD, TagRange, Unsettled
from headrace_broker.gateways.amqp.model.states import CONSUMER_ACTIVE, CONSUMER_ENDED
from headrace_broker.gateways.publishing.output_buffer import PAUSE_OUTPUT
from headrace_broker.model.limits import OUTPUT_FLUSH_BYTES
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE
from headrace_broker.runtime.contract.traffic import ClientTraffic


@final
class Deliveries(DeliverySource):
    """Sends runs as far as socket, flow and limit allow; settles what the client acknowledges."""

    def __init__(
        self,
        channel: i64,
        output: ConnectionOutput,
        transaction: Transaction,
        traffic: ClientTraffic,
    ) -> None:
        self.channel = channel  # its number
        self.flowing = True  # the client wants deliveries (channel.flow)
        self.limit: i64 = 0  # unsettled deliveries of the whole channel at once, 0 for no limit
        self.unsettled = Unsettled()  # what the client has not settled
        self._output = output
        self._transaction = transaction
        self.traffic = traffic  # of the channel
        self._next_tag: i64 = 1
        self._holding: deque[Consumer] = deque()
        self._queued = False  # stands with the output

    # Towards the client

    def deliver(self, consumer: Consumer, run: DeliveryRun) -> None:
        """Send a run, or hold back what cannot go now."""
        if consumer.held or not self._output.writable or not self._open_to(consumer):
            self._hold(consumer, run, 0)
            return
        stop = self._send(consumer, run, 0)
        if stop < len(run.positions):
            self._hold(consumer, run, stop)

    def send_some(self) -> bool:
        """Send one held run, or a part of it, of the next consumer in turn that may have it."""
        for _ in range(len(self._holding)):
            consumer = self._holding.popleft()
            if not consumer.held or consumer.state == CONSUMER_ENDED:
                consumer.queued = False
                continue
            if not self._open_to(consumer):
                self._holding.append(consumer)
                continue
            run = consumer.held[0]
            stop = self._send(consumer, run, consumer.held_start)
            if stop == len(run.positions):
                consumer.held.popleft()
                stop = 0
            consumer.held_start = stop
            self._holding.append(consumer)
            return True
        self._queued = False
        return False

    def resume(self) -> None:
        """Try again: the flow, a limit or a consumer has opened."""
        if self._holding and not self._queued:
            self._queued = True
            self._output.hold(self)

    def got(self, link: ConsumerLink, run: DeliveryRun, left: i64, no_ack: bool) -> None:
        """Send what basic.get found."""
        output = self._output
        self.traffic.got(run.redelivered[:1], no_ack)
        tag = self._tags(link.getter, run.first, 1, no_ack)
        rest = encode_get_ok(output.out, self.channel, tag, run, 0, left, output.frame_max)
        output.wrote_message(rest)
        output.spend(link.getter, body_bytes(run.blob, run.base, run.positions))

    def reply(self, consumer_tag: bytes, publish: Publish) -> None:
        """Send a direct reply, or drop it when the client does not read or wants nothing.

        A reply waits for the socket as confirms do, and not as deliveries, which have a queue.
        """
        output = self._output
        if not self.flowing or output.pauses & PAUSE_OUTPUT:
            return
        run = DeliveryRun(0, 0, encode_batch([publish]), 0, [0], b"\0")
        tag = self._next_tag
        self._next_tag += 1
        rest = encode_deliveries(
            output.out, self.channel, consumer_tag, tag, run, 0, 1, output.frame_max
        )
        output.wrote_message(rest)

    def _open_to(self, consumer: Consumer) -> bool:
        return (
            self.flowing
            and consumer.state == CONSUMER_ACTIVE
            and (self.limit == 0 or self._room() > 0)
        )

    def _room(self) -> i64:
        """Return how many more deliveries the limit of the channel, if it has one, lets out.

        What basic.get took does not count. Source: RabbitMQ 3.10, where its limiter never sees it.
        """
        unsettled = self.unsettled
        return self.limit - unsettled.count + unsettled.got_count - self._transaction.deferred

    def _hold(self, consumer: Consumer, run: DeliveryRun, start: i64) -> None:
        if not consumer.held:
            consumer.held_start = start
        consumer.held.append(run)
        if not consumer.queued:
            consumer.queued = True
            self._holding.append(consumer)
        self.resume()

    def _send(self, consumer: Consumer, run: DeliveryRun, start: i64) -> i64:
        """Encode deliveries from index `start` on; returns the index after the last that went."""
        output = self._output
        positions = run.positions
        stop: i64 = len(positions)
        if self.limit > 0 and not consumer.no_ack:
            room = self._room()
            if stop - start > room:
                stop = start + room
        byte_count = body_bytes(run.blob, run.base, positions[start:stop])
        if byte_count > OUTPUT_FLUSH_BYTES and stop - start > 1:
            stop = (
                start + 1
            )  # large messages go one by one, so that a slow socket stops them in time
            byte_count = body_bytes(run.blob, run.base, positions[start:stop])
        self.traffic.delivered(run.redelivered[start:stop], consumer.no_ack)
        tag = self._tags(consumer, run.first + start, stop - start, consumer.no_ack)
        rest = encode_deliveries(
            output.out, self.channel, consumer.tag_bytes, tag, run, start, stop, output.frame_max
        )
        output.wrote_message(rest)
        output.spend(consumer, byte_count)
        return stop

    def _tags(self, consumer: Consumer, number: i64, count: i64, no_ack: bool) -> i64:
        """Give `count` deliveries their tags; returns the first."""
        tag = self._next_tag
        self._next_tag += count
        link = consumer.link
        if no_ack:
            link.client.settle(consumer.number, ACCEPT, number, number + count - 1)
            self._output.touch(link)
        else:
            link.unsettled += count
            self.unsettled.add(tag, count, consumer, number)
        return tag

    # From the client

    def settle(self, first: i64, last: i64, multiple: bool, operation: int) -> None:
        """Accept, release or reject the deliveries `first` to `last`, or all up to `last`.

        Raises:
            AmqpError: PRECONDITION_FAILED, a tag is not outstanding; those before it are settled.
        """
        ranges: list[TagRange] = []
        if multiple:
            missing = self.unsettled.take_through(last, ranges)
        else:
            missing = self.unsettled.take(first, last, ranges)
        self._settle(ranges, operation, missing)

    def release_all(self) -> None:
        """Give everything unsettled back to the queues, but what a transaction has settled."""
        self._apply(self.unsettled.take_all(), RELEASE)

    def commit(self) -> list[ConsumerLink]:
        """Settle what the transaction holds; returns the queues that have to answer."""
        settles: dict[ConsumerLink, list[tuple[int, int, int, int]]] = {}
        for settlement in self._transaction.take_settlements():
            held = settlement.range
            if settlement.operation == ACCEPT:
                self.traffic.ack += held.count
            consumer = held.consumer
            link = consumer.link
            link.unsettled -= held.count
            if link.closed or consumer.lost:
                continue
            last = held.number + held.count - 1
            item = (int(consumer.number), int(settlement.operation), int(held.number), int(last))
            settles.setdefault(link, []).append(item)
        for link, items in settles.items():
            link.client.settle_whole(items)
        if self.limit > 0:
            self.resume()
        return list(settles)

    def roll_back(self) -> None:
        """Take what the transaction holds for unsettled again."""
        self.unsettled.put_back([each.range for each in self._transaction.take_settlements()])

    def release_held(self, consumer: Consumer) -> None:
        """Give back what a cancelled consumer was not sent."""
        start = consumer.held_start
        link = consumer.link
        for run in consumer.held:
            if not link.closed:
                last = run.first + len(run.positions) - 1
                link.client.settle(consumer.number, RELEASE, run.first + start, last)
                self._output.touch(link)
            start = 0
        consumer.held.clear()
        consumer.held_start = 0

    def clear(self) -> None:
        """Forget everything; the closing of the sessions gives it back."""
        for consumer in self._holding:
            consumer.held.clear()
        self._holding.clear()
        self.unsettled.take_all()

    def _settle(self, ranges: list[TagRange], operation: int, missing: i64) -> None:
        if self._transaction.selected:
            self._transaction.settle(ranges, operation)
        else:
            self._apply(ranges, operation)
        if missing != ALL_HELD:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {int(missing)}")

    def _apply(self, ranges: list[TagRange], operation: int) -> None:
        for held in ranges:
            consumer = held.consumer
            link = consumer.link
            link.unsettled -= held.count
            if operation == ACCEPT:
                self.traffic.ack += held.count
            if link.closed or consumer.lost:
                continue
            last = held.number + held.count - 1
            link.client.settle(consumer.number, operation, held.number, last)
            self._output.touch(link)
        if self.limit > 0:
            self.resume()
