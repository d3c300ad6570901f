"""Publishing: a stream to the broker that comes back when it is lost.

`publish_buffer` has what is not confirmed, and is sent again then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple

import grpc

from headrace_client.confirm import Confirm
from headrace_client.error import (
    FENCED,
    BrokerFaultError,
    ClosedError,
    FencedError,
    FieldProblem,
    HeadraceError,
    HeldBackError,
    InvalidArgumentError,
    code_name,
)
from headrace_client.kept_stream import KeptStream
from headrace_client.limits import (
    CALL_SECONDS,
    PROPERTIES_BYTES_MAX,
    UNCONFIRMED_BYTES_MAX,
    UNCONFIRMED_MESSAGES_MAX,
)
from headrace_client.link import Link
from headrace_client.message import Properties
from headrace_client.message_bytes import MessageEncoder, element_of
from headrace_client.placement import Placement
from headrace_client.publish_buffer import Entry, PublishBuffer
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import (
    DESCRIPTOR,
    PublishOpen,
    PublishRequest,
    PublishResponse,
)

SEQUENCE_MAX: Final = (1 << 62) - 1
_PUBLISH: Final = f"/{DESCRIPTOR.services_by_name['Messaging'].full_name}/Publish"


class Stop(NamedTuple):
    """Reason that holds a publisher back."""

    limit: str  # its name, as in `headrace flow limits`
    queue: str  # behind it, "" for none
    node: str  # whose limit or alarm it is
    text: str  # for people


class PublisherOptions(NamedTuple):
    """See `Client.publisher`."""

    vhost: str
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    confirms: bool = True
    publisher_id: str = ""
    epoch: int | None = None
    name: str = ""
    unconfirmed_max: int = UNCONFIRMED_MESSAGES_MAX
    unconfirmed_bytes_max: int = UNCONFIRMED_BYTES_MAX
    give_up_after_s: float | None = None
    at_leader: bool = True

    def led_queue(self) -> str:
        """Return the queue whose leader is wanted, "" for none."""
        return self.routing_key if self.at_leader and not self.exchange else ""

    def opening(self) -> PublishRequest:
        """Return the first request of a stream."""
        return PublishRequest(
            open=PublishOpen(
                vhost=self.vhost,
                exchange=self.exchange,
                routing_key=self.routing_key,
                mandatory=self.mandatory,
                confirms=self.confirms,
                publisher_id=self.publisher_id,
                epoch=self.epoch or 0,
                name=self.name,
            )
        )


class Publisher:
    """Publishes messages; made by `Client.publisher`, and used as an asynchronous context manager.

    Messages of one task arrive in the order in which it publishes them.
    """

    def __init__(self, link: Link, options: PublisherOptions) -> None:
        if options.epoch is not None and not options.publisher_id:
            raise ValueError("epoch: belongs to a publisher_id")
        if options.epoch is not None and not 0 <= options.epoch <= SEQUENCE_MAX:
            raise ValueError(f"epoch: must be from 0 to {SEQUENCE_MAX}, not {options.epoch}")
        self.node = ""  # that it publishes through, "" before it is connected
        self._link = link
        self._options = options
        self._buffer = PublishBuffer(
            options.confirms,
            bool(options.publisher_id),
            options.unconfirmed_max,
            options.unconfirmed_bytes_max,
        )
        self._encoder = MessageEncoder()
        self._last_sequence = 0
        self._message_bytes_max = 0
        self._waiters: deque[tuple[Entry, asyncio.Future[None]]] = deque()
        self._work = asyncio.Event()  # there is something to write
        self._answered = asyncio.Event()  # something was answered, or will not be
        self._failure: HeadraceError | None = None
        self.is_over = False  # it is being closed
        self.has_progress = False  # this stream has brought answers
        self._placement = Placement(link, options.vhost, options.led_queue())
        self._stream = KeptStream(link, self, "publisher", options.give_up_after_s)

    # Its life

    async def open(self) -> Publisher:
        """Connect, unless it is done already.

        Raises:
            HeadraceError: it cannot.
        """
        await self._stream.start()
        return self

    async def __aenter__(self) -> Publisher:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._end()

    async def close(self, timeout_s: float = CALL_SECONDS) -> None:
        """Wait until all is answered, then end the stream.

        Raises:
            HeadraceError: as `flush`; it is closed whatever comes.
        """
        try:
            if self._stream.is_started:
                await self.flush(timeout_s)
                self.is_over = True
                self._work.set()
                await self._stream.wait(timeout_s)
                self._raise_refused()  # of messages without confirms, that is known late
        finally:
            await self._end()

    async def _end(self) -> None:
        self.is_over = True
        await self._stream.stop()
        self.failed(ClosedError("the publisher is closed"))

    # Publishing

    async def publish(
        self,
        body: bytes,
        routing_key: str | None = None,
        *,
        exchange: str | None = None,
        properties: Properties | None = None,
        sequence: int | None = None,
        timeout_s: float | None = None,
    ) -> Confirm:
        """Send a message, once the broker has room for it: to await this is back-pressure.

        When this is cancelled, the message is not published unless it was sent already.

        Args:
            body: any bytes.
            routing_key: None for the publisher's.
            exchange: likewise; "" is the default exchange.
            properties: of the message.
            sequence: of a publisher with an id: number of the message, larger than all before;
                None for the next, which takes an epoch.
            timeout_s: seconds to wait for room, None for as long as it takes.

        Returns:
            What becomes of it. Without confirms that is known once it is written.

        Raises:
            HeldBackError: there was no room in time; the text says what holds the publisher back.
            FencedError: another publisher has this id and a higher epoch.
            InvalidArgumentError: the message is too large.
            HeadraceError: the publisher failed, or is closed.
            ValueError: a sequence that cannot be, or none where one must be given.
        """
        self._check_open()
        element = self._encoder.encode(body, exchange, routing_key, properties)
        entry = Entry(element, 0)
        self._check_size(len(body), entry.size)
        entry.sequence = self._number(sequence)
        if not self._accepts(entry):
            await self._wait_for_room(entry, timeout_s)
        return entry

    async def publish_all(
        self, messages: Iterable[Message], sequences: Iterable[int] | None = None
    ) -> list[Confirm]:
        """Send messages, each once the broker has room for it: costs less than one by one.

        Args:
            messages: of `headrace_protos.broker.v1.message_pb2`, as they are to be sent.
            sequences: one for each, as in `publish`; None for the next ones.

        Returns:
            What becomes of each. One that is too large is not sent, and its Confirm says so.

        Raises:
            FencedError: another publisher has this id and a higher epoch.
            HeadraceError: the publisher failed, or is closed.
            ValueError: a sequence that cannot be, or none where one must be given.
        """
        confirms: list[Confirm] = []
        numbers = iter(sequences) if sequences is not None else None
        for message in messages:
            self._check_open()
            given = next(numbers) if numbers is not None else None
            entry = Entry(element_of(message), self._number(given))
            confirms.append(entry)
            try:
                self._check_size(len(message.body), entry.size)
            except InvalidArgumentError as error:
                entry.element = b""
                entry.settle(error)
                continue
            if not self._accepts(entry):
                await self._wait_for_room(entry, None)
        return confirms

    def _accepts(self, entry: Entry) -> bool:
        """Accept a message if there is room, and nobody waits for some."""
        if self._waiters or not self._buffer.has_room(entry.size):
            return False
        self._buffer.add(entry)
        self._work.set()
        return True

    def _number(self, sequence: int | None) -> int:
        if sequence is None:
            if self._options.publisher_id and self._options.epoch is None:
                # Numbers from 1 on would be taken for repetitions after a restart, and confirmed.
                raise ValueError("sequence: must be given, or an epoch with the publisher_id")
            sequence = self._last_sequence + 1
        elif not self._options.publisher_id:
            raise ValueError("sequence: belongs to a publisher with a publisher_id")
        if not self._last_sequence < sequence <= SEQUENCE_MAX:
            raise ValueError(
                f"sequence: must be from {self._last_sequence + 1} to {SEQUENCE_MAX}, "
                f"not {sequence}"
            )
        self._last_sequence = sequence
        return sequence

    def _check_size(self, body: int, size: int) -> None:
        most = self._message_bytes_max
        if body > most:
            raise _too_large("body", f"has {body} bytes, the broker takes at most {most}")
        if size - body > PROPERTIES_BYTES_MAX:
            rule = f"has {size - body} bytes beside its body, at most {PROPERTIES_BYTES_MAX}"
            raise _too_large("properties", rule)

    async def _wait_for_room(self, entry: Entry, timeout_s: float | None) -> None:
        """Wait in line; a waiter that finds room accepts the first one's message."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (entry, future)
        self._waiters.append(place)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            if self._give_up(place):
                raise self._held_back(timeout_s or 0.0) from None
        except asyncio.CancelledError:
            self._give_up(place)
            raise

    def _give_up(self, place: tuple[Entry, asyncio.Future[None]]) -> bool:
        """Return whether a message is not published; it is when it was sent in the last moment."""
        entry, future = place
        if place in self._waiters:
            self._waiters.remove(place)
            gone = True
        else:
            gone = future.cancelled() or self._buffer.withdraw(entry)
        self._admit()
        return gone

    def _held_back(self, waited_s: float) -> HeldBackError:
        stop = self.stopped_by
        if stop is not None:
            text = f"not taken within {waited_s:g} s: {stop.text}"
            metadata = {"limit": stop.limit, "queue": stop.queue, "node": stop.node}
            return HeldBackError(text, "", "HELD_BACK", metadata=metadata)
        if not self.is_connected:
            return HeldBackError(f"not taken within {waited_s:g} s: no node can be reached")
        text = f"{len(self._buffer)} messages are not confirmed"
        return HeldBackError(f"not taken within {waited_s:g} s: {text}")

    def _admit(self) -> None:
        """Accept those in line for whom there is room."""
        buffer = self._buffer
        while self._waiters:
            entry, future = self._waiters[0]
            if future.done():
                self._waiters.popleft()
                continue
            if not buffer.has_room(entry.size):
                return
            self._waiters.popleft()
            buffer.add(entry)
            future.set_result(None)
            self._work.set()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was published is answered.

        Raises:
            PublishRefusedError: a message was refused, and nobody has asked about it; the first.
            HeldBackError: it took too long.
            HeadraceError: the publisher failed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._failure is None and (len(self._buffer) or self._waiters):
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            raise self._held_back(timeout_s or 0.0) from None
        self._raise_refused()
        if self._failure is not None and not isinstance(self._failure, ClosedError):
            raise self._failure

    def _raise_refused(self) -> None:
        for confirm in self._buffer.take_refused():
            if confirm.error is not None:
                raise confirm.error

    # What it is like

    @property
    def is_connected(self) -> bool:
        """True while there is a stream."""
        return self._buffer.window is not None

    @property
    def stopped_by(self) -> Stop | None:
        """Limit that stops the publisher, or defers its confirms; None for none."""
        window = self._buffer.window
        if window is None or not window.HasField("stop"):
            return None
        stop = window.stop
        return Stop(stop.limit, stop.queue, stop.node, stop.text)

    @property
    def unconfirmed_count(self) -> int:
        """Messages that are not answered."""
        return len(self._buffer)

    @property
    def resent_count(self) -> int:
        """Messages that were sent again after a stream was lost."""
        return self._buffer.resent_count

    @property
    def refused_count(self) -> int:
        """Messages that were refused."""
        return self._buffer.refused_count

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._stream.is_started:
            raise ClosedError("the publisher is not open: `async with` it, or await open()")

    # The stream

    def call(self, channel: grpc.aio.Channel) -> Any:
        """See `StreamUser`."""
        publish: Any = channel.stream_stream(_PUBLISH, None, PublishResponse.FromString)
        return publish(metadata=self._link.metadata)

    async def place(self) -> str | None:
        """See `StreamUser`."""
        return await self._placement.endpoint()

    def opening(self) -> bytes:
        """See `StreamUser`."""
        return self._options.opening().SerializeToString()

    def begin(self, answer: PublishResponse) -> None:
        """See `StreamUser`."""
        if answer.WhichOneof("kind") != "opened":
            raise BrokerFaultError("the broker has not begun the stream")
        opened = answer.opened
        self.node = opened.node
        self._message_bytes_max = opened.message_octets_max
        self._buffer.opened(opened)
        self._work.set()
        self._admit()

    async def write(self, call: Any) -> None:
        """See `StreamUser`."""
        while True:
            self._work.clear()
            while (request := self._buffer.next_request()) is not None:
                await call.write(request)
                if not self._options.confirms:
                    self._answered.set()
            if self.is_over and not len(self._buffer):
                await call.done_writing()
                return
            self._admit()
            if not self._work.is_set():
                await self._work.wait()

    def receive(self, answer: PublishResponse) -> None:
        """See `StreamUser`."""
        buffer = self._buffer
        kind = answer.WhichOneof("kind")
        if kind == "confirmed":
            buffer.confirmed(answer.confirmed.ranges)
            self.has_progress = True
        elif kind == "refused":
            if answer.refused.reason == FENCED:
                refused = answer.refused
                code = code_name(refused.code)
                raise self._stream.fatal(FencedError(refused.text, code, FENCED))
            buffer.refused_by(answer.refused)
            self.has_progress = True
        elif kind == "returned":
            buffer.returned(answer.returned)
        elif kind == "window":
            buffer.renew(answer.window)
        self._answered.set()
        self._admit()
        self._work.set()

    def lost(self, error: HeadraceError) -> None:
        """See `StreamUser`."""
        self._buffer.lost()
        if self.is_over and len(self._buffer):
            self.failed(error)

    def failed(self, error: HeadraceError) -> None:
        """Note the final failure of the stream, and wake all waiters. The first one counts."""
        if self._failure is None:
            self._failure = error
        failure = self._failure
        self._buffer.fail(failure)
        waiters, self._waiters = self._waiters, deque()
        for entry, future in waiters:
            entry.settle(failure)
            if not future.done():
                future.set_exception(failure)
        self._answered.set()


def _too_large(field: str, rule: str) -> InvalidArgumentError:
    fields = [FieldProblem(field, rule)]
    return InvalidArgumentError(f"{field}: {rule}", "INVALID_ARGUMENT", "TOO_LARGE", fields)
