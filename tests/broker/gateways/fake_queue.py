"""Queues in memory and clients of them, which answer at once and on the same call stack."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator
from typing import Any

from headrace_broker.codecs.batch import body_bytes, encode_batch
from headrace_broker.flow import gate
from headrace_broker.flow.account import Account
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import LIMIT_QUEUE
from headrace_broker.model.message import DeliveryRun, Publish, Publisher
from headrace_broker.model.reply_code import ACCESS_REFUSED, NOT_FOUND, AmqpError
from headrace_broker.runtime.contract.port import (
    GET_CONSUMER,
    MODIFY_FAILED,
    RELEASE,
    Attachment,
    PendingConfirm,
    QueueClient,
    QueueListener,
)
from headrace_broker.runtime.session.lane import message_cost


class Gate:
    """Something to await that a test opens; works on a loop and without one."""

    def __init__(self) -> None:
        self.opened = True

    def __await__(self) -> Generator[None, None, None]:
        while not self.opened:
            yield


class Message:
    def __init__(self, number: int, blob: bytes, position: int) -> None:
        self.number = number
        self.blob = blob
        self.position = position
        self.acquired = 0
        self.failed = 0


class FakeConsumer:
    def __init__(self, client: FakeClient, number: int, credit: int, exclusive: bool) -> None:
        self.client = client
        self.number = number
        self.credit = credit
        self.prefetch = credit
        self.exclusive = exclusive
        self.window = client.broker.window_bytes
        self.next_delivery = 1
        self.tag = ""


class FakeQueue:
    """Ready messages in order, and who holds the others."""

    def __init__(self, definition: Queue) -> None:
        self.definition = definition
        self.gate = gate.Gate(LIMIT_QUEUE, definition.group)
        self.ready: deque[Message] = deque()
        self.consumers: list[FakeConsumer] = []
        self.settled: list[tuple[int, int]] = []  # operation, message number
        self.purged: list[int] = []
        self.gone = False
        self.refusing = False
        self.fencing = False
        self.next_message = 1

    def enqueue(self, publishes: list[Publish]) -> None:
        blob = encode_batch(publishes)
        for position in range(len(publishes)):
            self.ready.append(Message(self.next_message, blob, position))
            self.next_message += 1

    def requeue(self, message: Message) -> None:
        self.ready.append(message)
        self.ready = deque(sorted(self.ready, key=lambda each: each.number))

    def dispatch(self) -> None:
        for consumer in list(self.consumers):
            while self.ready and consumer.credit > 0 and consumer.window > 0:
                consumer.client.deliver(self.take_run(consumer))

    def time_out(self) -> None:
        """The oldest consumer holds a delivery too long."""
        consumer = self.consumers.pop(0)
        client = consumer.client
        del client.consumers[consumer.number]
        for key in [key for key in client.unsettled if key[0] == consumer.number]:
            self.requeue(client.unsettled.pop(key))
        client.listener.on_timed_out(client, consumer.number)

    def take_run(self, consumer: FakeConsumer) -> DeliveryRun:
        """As many messages of one batch as the consumer may have."""
        first = self.ready.popleft()
        taken = [first]
        byte_count = body_bytes(first.blob, 0, [first.position])
        while (
            self.ready
            and len(taken) < consumer.credit
            and byte_count < consumer.window
            and self.ready[0].blob is first.blob
        ):
            taken.append(self.ready.popleft())
            byte_count += body_bytes(first.blob, 0, [taken[-1].position])
        for at, message in enumerate(taken):
            held = consumer.client.unsettled
            held[(consumer.number, consumer.next_delivery + at)] = message
        run = DeliveryRun(
            consumer.number,
            consumer.next_delivery,
            first.blob,
            0,
            [message.position for message in taken],
            bytes(message.acquired > 0 for message in taken),
            b"".join(struct.pack(">II", each.failed, each.acquired) for each in taken),
        )
        for message in taken:
            message.acquired += 1
        consumer.next_delivery += len(taken)
        consumer.credit -= len(taken)
        consumer.window -= byte_count
        return run


class FakeClient(QueueClient):
    def __init__(
        self, broker: Any, fake: FakeQueue, listener: QueueListener, account: Account
    ) -> None:
        self.queue = fake.definition
        self.gate = fake.gate
        self.account = account
        self.fake = fake
        self.broker = broker
        self.listener = listener
        self.unsettled: dict[tuple[int, int], Message] = {}
        self.consumers: dict[int, FakeConsumer] = {}
        self.getter = FakeConsumer(self, GET_CONSUMER, 1 << 30, False)
        self.closed = False
        self.published: list[tuple[list[Publish], PendingConfirm | None]] = []
        self.settles: list[tuple[int, int, int, int]] = []
        self.settle_calls: list[tuple[int, int, int, int]] = []
        self.waiting: list[PendingConfirm] = []
        self.attachments: list[Attachment] = []
        self.commands: list[tuple[str, int]] = []  # those that were to be whole
        self.named: list[tuple[bytes, int, list[int]]] = []  # publishers and what they sent
        self.owed: list[tuple[int, int]] = []  # messages and bytes that are not repaid

    def publish(self, publishes: list[Publish], pending_confirm: PendingConfirm | None) -> bool:
        assert not self.closed
        self.published.append((list(publishes), pending_confirm))
        byte_count = sum(int(message_cost(publish)) for publish in publishes)
        self.owed.append((len(publishes), byte_count))
        self.account.balance(self.queue.group).borrow(len(publishes), byte_count)
        return not self.broker.congested

    def publish_named(
        self,
        publishes: list[Publish],
        pending_confirm: PendingConfirm | None,
        publisher: Publisher,
        sequences: list[int],
    ) -> bool:
        assert len(publishes) == len(sequences)
        self.named.append((publisher.name, int(publisher.epoch), list(sequences)))
        return self.publish(publishes, pending_confirm)

    def settle(self, consumer: int, operation: int, first: int, last: int) -> None:
        assert not self.closed
        self.settles.append((consumer, operation, first, last))
        self.settle_calls.append(self.settles[-1])

    def publish_whole(self, publishes: list[Publish], pending_confirm: PendingConfirm) -> bool:
        self.flush()
        self.commands.append(("publish", len(publishes)))
        self.publish(publishes, pending_confirm)
        self.flush()
        return not self.broker.congested

    def settle_whole(self, settles: list[tuple[int, int, int, int]]) -> None:
        self.flush()
        self.commands.append(("settle", len(settles)))
        for settle in settles:
            self.settle(*settle)
        self.flush()

    async def applied(self) -> None:
        await self.broker.gate

    def flush(self) -> None:
        published, self.published = self.published, []
        for publishes, pending_confirm in published:
            self.fake.enqueue(publishes)
            if pending_confirm is not None:
                self.waiting.append(pending_confirm)
        settles, self.settles = self.settles, []
        for consumer, operation, first, last in settles:
            self._settle(consumer, operation, first, last)
        if not self.broker.hold_loans:
            self.repay()
        if not self.broker.hold_confirms:
            self.confirm(len(self.waiting), self.fake.refusing)
        self.fake.dispatch()

    def confirm(self, count: int, rejected: bool = False) -> None:
        """Answer the oldest pending confirms; `rejected`: the last publish of each is refused."""
        pending_confirms, self.waiting = self.waiting[:count], self.waiting[count:]
        if pending_confirms and rejected:
            for pending_confirm in pending_confirms:
                pending_confirm.refuse(pending_confirm.last, pending_confirm.last)
                pending_confirm.fenced = self.fake.fencing
            self.listener.on_rejected(self, pending_confirms)
        elif pending_confirms:
            self.listener.on_confirmed(self, pending_confirms)

    def repay(self) -> None:
        """All that was published is applied, or given up."""
        owed, self.owed = self.owed, []
        for messages, byte_count in owed:
            self.account.balance(self.queue.group).repay(messages, byte_count)

    def _settle(self, number: int, operation: int, first: int, last: int) -> None:
        for delivery in range(first, last + 1):
            message = self.unsettled.pop((number, delivery))
            self.fake.settled.append((operation, message.number))
            message.failed += operation == MODIFY_FAILED
            if operation in (RELEASE, MODIFY_FAILED):
                self.fake.requeue(message)
        if number in self.consumers:
            self.consumers[number].credit += last - first + 1

    def deliver(self, run: DeliveryRun) -> None:
        self.listener.on_delivery(self, run)

    def lose(self, consumer: FakeConsumer) -> None:
        """The queue is deleted: what the consumer holds is gone."""
        del self.consumers[consumer.number]
        for number, delivery in [each for each in self.unsettled if each[0] == consumer.number]:
            self.fake.purged.append(self.unsettled.pop((number, delivery)).number)

    def set_prefetch(self, prefetches: list[tuple[int, int]]) -> bool:
        assert not self.closed
        if self.broker.old_members:
            return False
        for number, prefetch in prefetches:
            found = self.consumers.get(number)
            if found is not None:
                found.credit += prefetch - found.prefetch
                found.prefetch = prefetch
        for attachment in self.attachments:
            for number, prefetch in prefetches:
                if number in self.consumers and self.consumers[number].tag == attachment.tag:
                    attachment.prefetch = prefetch
        self.fake.dispatch()
        return True

    async def attach(self, consumer: int, attachment: Attachment) -> None:
        await self.broker.gate
        exclusive = attachment.exclusive
        self.attachments.append(attachment)
        if self.fake.gone:
            raise AmqpError(NOT_FOUND, f"no queue '{self.queue.name}' in vhost '/'")
        others = self.fake.consumers
        if others and (exclusive or others[0].exclusive):
            raise AmqpError(ACCESS_REFUSED, f"queue '{self.queue.name}' in exclusive use")
        if self.closed:
            return
        found = FakeConsumer(self, consumer, attachment.prefetch, exclusive)
        found.tag = attachment.tag
        self.consumers[consumer] = found
        others.append(found)
        self.fake.dispatch()

    async def cancel(self, consumer: int) -> None:
        await self.broker.gate
        found = self.consumers.pop(consumer, None)
        if found is not None:  # it was not lost meanwhile
            self.fake.consumers.remove(found)

    async def get(self, message_id: int = 0) -> tuple[DeliveryRun, int] | None:
        assert message_id == 0, "basic.get names no message"
        await self.broker.gate
        if not self.fake.ready or self.closed:
            return None
        self.getter.credit = 1
        return self.fake.take_run(self.getter), len(self.fake.ready)

    async def purge(self) -> int:
        count = len(self.fake.ready)
        self.fake.purged += [message.number for message in self.fake.ready]
        self.fake.ready.clear()
        return count

    async def remove(self, message_ids: list[int]) -> int:
        raise AssertionError("no AMQP method removes messages by their ids")

    def consumed(self, consumer: int, byte_count: int) -> None:
        assert not self.closed
        found = self.getter if consumer == GET_CONSUMER else self.consumers.get(consumer)
        if found is not None:
            found.window += byte_count
        self.fake.dispatch()

    def abandon(self) -> list[PendingConfirm]:
        self.flush()
        self.repay()
        pending_confirms, self.waiting = self.waiting, []
        self.close()
        return pending_confirms

    def close(self) -> None:
        assert not self.closed
        assert self.published == []  # flushed before
        assert self.settles == []
        self.closed = True
        for consumer in self.consumers.values():
            self.fake.consumers.remove(consumer)
        for message in self.unsettled.values():
            self.fake.requeue(message)
        self.unsettled.clear()
        self.fake.dispatch()
