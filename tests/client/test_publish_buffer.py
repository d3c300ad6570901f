"""The buffer of a publisher against a broker that counts its messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace_client.error import ClosedError
from headrace_client.message_bytes import element_of
from headrace_client.publish_buffer import Entry, PublishBuffer
from headrace_protos.broker.v1.message_pb2 import Message, Range
from headrace_protos.broker.v1.messaging_pb2 import (
    PublishBatch,
    PublishOpened,
    PublishRequest,
    Refused,
    Window,
)

BATCH_MESSAGES = 4
BATCH_BYTES = 400


def opened(messages: int, byte_count: int, next_sequence: int = 1) -> PublishOpened:
    return PublishOpened(
        next_sequence=next_sequence,
        batch_messages_max=BATCH_MESSAGES,
        batch_octets_max=BATCH_BYTES,
        window=Window(messages=messages, octets=byte_count),
    )


def sent(buffer: PublishBuffer) -> PublishBatch | None:
    """Return the next batch of a buffer, as the broker reads it."""
    request = buffer.next_request()
    return PublishRequest.FromString(request).batch if request is not None else None


def entry_of(body: bytes, number: int, routing_key: str | None = None) -> Entry:
    return Entry(element_of(Message(body=body, routing_key=routing_key)), number)


class Broker(RuleBasedStateMachine):
    """A publisher's messages between acceptance and answer, in any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = PublishBuffer(messages_max=12, bytes_max=2000)
        self.entries: list[Entry] = []
        self.arrived: list[int] = []  # numbers of messages on this stream, in order
        self.ever: dict[int, int] = {}  # how often a message arrived
        self.byte_count = 0
        self.window: tuple[int, int] | None = None
        self.answered: set[int] = set()

    @rule(size=st.integers(0, 600))
    def publish(self, size: int) -> None:
        number = len(self.entries)
        entry = entry_of(b"x" * size, number + 1, str(number))
        if self.buffer.has_room(entry.size):
            self.entries.append(entry)
            self.buffer.add(entry)

    @precondition(lambda self: self.window is None)
    @rule(messages=st.integers(0, 8), byte_count=st.integers(0, 1500), first=st.integers(1, 5))
    def open(self, messages: int, byte_count: int, first: int) -> None:
        self.buffer.opened(opened(messages, byte_count, first))
        self.window = (messages, byte_count)
        self.first = first

    @precondition(lambda self: self.window is not None)
    @rule()
    def send(self) -> None:
        assert self.window is not None
        while (batch := sent(self.buffer)) is not None:
            assert batch.first_sequence == self.first + len(self.arrived)
            count, size = len(batch.messages), batch.ByteSize()
            assert 1 <= count <= BATCH_MESSAGES
            fits = self.byte_count + size <= self.window[1]
            if count > 1:
                assert fits
                assert size <= BATCH_BYTES
            assert fits or self.byte_count < self.window[1]
            assert len(self.arrived) + count <= self.window[0]
            for each in batch.messages:
                number = int(each.routing_key)
                self.arrived.append(number)
                self.ever[number] = self.ever.get(number, 0) + 1
            self.byte_count += size

    @precondition(lambda self: self.window is not None)
    @rule(messages=st.integers(0, 8), byte_count=st.integers(0, 1500))
    def renew(self, messages: int, byte_count: int) -> None:
        self.window = (len(self.arrived) + messages, self.byte_count + byte_count)
        self.buffer.renew(Window(messages=self.window[0], octets=self.window[1]))

    @precondition(lambda self: self.arrived)
    @rule(data=st.data(), refuse=st.booleans())
    def answer(self, data: Any, refuse: bool) -> None:
        low = data.draw(st.integers(0, len(self.arrived) - 1))
        high = data.draw(st.integers(low, len(self.arrived) - 1))
        ranges = [Range(first=self.first + low, last=self.first + high)]
        fresh = set(self.arrived[low : high + 1]) - self.answered
        if refuse:
            self.buffer.refused_by(Refused(ranges=ranges, text="full"))
        else:
            self.buffer.confirmed(ranges)
        for number in fresh:
            confirm = self.entries[number]
            assert confirm.is_done
            assert (confirm.error is not None) == refuse
        self.answered |= fresh

    @precondition(lambda self: self.window is not None)
    @rule()
    def lose(self) -> None:
        self.buffer.lost()
        self.window = None
        self.arrived.clear()
        self.byte_count = 0

    @invariant()
    def nothing_is_lost_or_forgotten(self) -> None:
        waiting = {n for n in range(len(self.entries)) if n not in self.answered}
        assert len(self.buffer) == len(waiting)
        assert self.buffer.bytes_in == sum(self.entries[n].size for n in waiting)
        for number in waiting:
            assert not self.entries[number].is_done

    @invariant()
    def messages_arrive_in_order_on_each_stream(self) -> None:
        assert self.arrived == sorted(set(self.arrived))

    @invariant()
    def what_arrived_twice_is_marked(self) -> None:
        for number, times in self.ever.items():
            assert times == 1 or self.entries[number].resent

    def teardown(self) -> None:
        self.buffer.fail(ClosedError("closed"))
        assert all(entry.is_done for entry in self.entries)
        assert (len(self.buffer), self.buffer.bytes_in) == (0, 0)


TestBroker = Broker.TestCase


def test_a_message_larger_than_the_window_goes_alone_when_it_is_open() -> None:
    buffer = PublishBuffer()
    buffer.opened(opened(5, 100))
    large = entry_of(b"x" * 500, 1)
    assert buffer.has_room(large.size)
    buffer.add(large)
    assert not buffer.has_room(1)
    batch = sent(buffer)
    assert batch is not None
    assert not buffer.has_room(1)
    buffer.renew(Window(messages=5, octets=batch.ByteSize() + 1))
    assert buffer.has_room(1000)


def test_ranges_that_cannot_be_meant_cost_nothing() -> None:
    buffer = PublishBuffer()
    buffer.opened(opened(5, 1000))
    entry = entry_of(b"x", 1)
    buffer.add(entry)
    buffer.next_request()
    buffer.confirmed([Range(first=7, last=(1 << 64) - 1), Range(first=5, last=1)])
    assert not entry.is_done
    buffer.confirmed([Range(first=0, last=(1 << 64) - 1)])
    assert entry.is_done


def test_a_message_is_withdrawn_only_before_it_is_sent() -> None:
    buffer = PublishBuffer()
    buffer.opened(opened(5, 1000))
    first, second = (entry_of(b"x", n) for n in (1, 2))
    buffer.add(first)
    buffer.next_request()
    buffer.add(second)
    assert not buffer.withdraw(first)
    assert buffer.withdraw(second)
    assert buffer.next_request() is None
