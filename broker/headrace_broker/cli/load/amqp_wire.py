"""A connection for many messages of one kind: bytes are made and read with the broker's own codec.

A library for AMQP takes longer for a message than the broker does, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar, cast, final

from aiormq.channel import exception_by_code as channel_error
from aiormq.connection import exception_by_code as connection_error
from aiormq.exceptions import (
    AMQPError,
    ChannelNotFoundEntity,
    IncompatibleProtocolError,
    ProbableAuthenticationError,
)
from pamqp import base, commands

from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.codecs.event import Method
from headrace_broker.codecs.frame import (
    BASIC_CONTENT,
    FRAME_BODY,
    FRAME_END,
    FRAME_ENVELOPE_BYTES,
    FRAME_HEADER,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
)
from headrace_broker.codecs.method import encode_method
from headrace_broker.codecs.reply_parser import Reply, ReplyParser
from headrace_broker.config.configuration import split_address
from headrace_broker.model.reply_code import ACCESS_REFUSED

F = TypeVar("F", bound=base.Frame)

CHANNEL: Final = 1
FRAME_MAX: Final = 131_072  # bytes that it takes, with the envelope; a broker may want less
READ_BYTES: Final = 262_144  # at most in one go
OPEN_S_MAX: Final = 30.0  # seconds until a connection is there, and logged in
CLOSE_S_MAX: Final = 60.0  # for the broker to have read what was sent, and to say so,
LEAVE_S_MAX: Final = 2.0  # where nobody waits for that
HEARTBEAT_S: Final = 60  # between signs of life, or what the broker wants if that is less
CAPABILITIES: Final[dict[str, Any]] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}

_METHODS: Final = cast(dict[int, type[base.Frame]], commands.INDEX_MAPPING)
_END: Final = bytes([FRAME_END])


def frame(kind: int, payload: bytes) -> bytes:
    """Return a frame on CHANNEL."""
    head = kind.to_bytes(1, "big") + CHANNEL.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + _END


def message_parts(
    routing_key: str, properties: commands.Basic.Properties, size: int, stamp: int, frame_max: int
) -> tuple[bytes, bytes]:
    """Return the bytes before and after the first `stamp` bytes of a body, the rest of it zeros.

    Args:
        routing_key: for the default exchange.
        properties: of the message.
        size: bytes of the body, `stamp` or more.
        stamp: bytes that stand between both.
        frame_max: bytes of a frame with its envelope.
    """
    publish = commands.Basic.Publish()
    publish.routing_key = routing_key
    header = BASIC_CONTENT.to_bytes(4, "big") + size.to_bytes(8, "big") + properties.marshal()
    room = frame_max - FRAME_ENVELOPE_BYTES
    body = bytes(size)
    frames = [frame(FRAME_BODY, body[at : at + room]) for at in range(0, size, room)]
    first = frames[0]
    lead = len(first) - 1 - min(size, room)
    before = encode_method(CHANNEL, publish) + frame(FRAME_HEADER, header) + first[:lead]
    return before, first[lead + stamp :] + b"".join(frames[1:])


@contextlib.asynccontextmanager
async def open_wire(
    address: str,  # HOST:PORT
    login: tuple[str, str],
    vhost: str,
    tls: ClientTls | None,  # how the node is known, None in the clear
) -> AsyncIterator[AmqpWire]:
    """Open a connection with one channel, and close both.

    Raises OSError, AMQPError: refused, lost, or the broker has not read all that was sent.
    """
    host, port = split_address(address)
    context = tls.context() if tls is not None else None
    async with asyncio.timeout(OPEN_S_MAX):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    wire = AmqpWire(reader, writer)
    beating = asyncio.create_task(wire.beat())
    try:
        async with asyncio.timeout(OPEN_S_MAX):
            await wire.begin(login, vhost)
        yield wire
        await wire.end(CLOSE_S_MAX)
    except asyncio.CancelledError:  # the usual end of a consumer
        with contextlib.suppress(OSError, AMQPError):
            await wire.end(LEAVE_S_MAX)
        raise
    finally:
        beating.cancel()
        writer.close()


@final
class AmqpWire:
    """One connection with one channel; `events` is for one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frame_max = FRAME_MAX  # bytes, as both sides agreed
        self.heartbeat_s = HEARTBEAT_S  # seconds, likewise
        self.write = writer.write  # takes whole frames
        self.drain = writer.drain  # waits while too much is to be sent
        self._reader = reader
        self._parser = ReplyParser(FRAME_MAX)
        self._early: list[Reply] = []  # what came behind an answer

    async def begin(self, login: tuple[str, str], vhost: str) -> None:
        """Log in and open the channel."""
        self.write(PROTOCOL_HEADER)
        await self._answer(commands.Connection.Start)
        user, password = login
        properties: dict[str, Any] = {"connection_name": "headrace", "capabilities": CAPABILITIES}
        proof = f"\0{user}\0{password}"
        start_ok = commands.Connection.StartOk(properties, "PLAIN", proof, "en_US")
        tune = await self.ask(start_ok, commands.Connection.Tune, 0)
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self.heartbeat_s = min(tune.heartbeat or HEARTBEAT_S, HEARTBEAT_S)
        tuned = commands.Connection.TuneOk(1, self.frame_max, self.heartbeat_s)
        self.write(encode_method(0, tuned))
        opening = commands.Connection.Open()
        opening.virtual_host = vhost
        await self.ask(opening, commands.Connection.OpenOk, 0)
        await self.ask(commands.Channel.Open(), commands.Channel.OpenOk)

    async def beat(self) -> None:
        """Send signs of life until cancelled."""
        while True:
            await asyncio.sleep(self.heartbeat_s / 2)
            self.write(HEARTBEAT_FRAME)

    async def end(self, seconds: float) -> None:
        """Close the connection once the broker has read all that was sent.

        Raises TimeoutError: it has not in so many seconds.
        """
        self.write(encode_method(0, commands.Connection.Close(200, "", 0, 0)))
        try:
            async with asyncio.timeout(seconds):
                await self._answer(commands.Connection.CloseOk)
        except TimeoutError:
            text = f"the broker has not read all that was sent {seconds:.0f} s after it was"
            raise TimeoutError(text) from None

    async def ask(self, command: base.Frame, answer: type[F], channel: int = CHANNEL) -> F:
        """Send a method, and return the answer to it."""
        self.write(encode_method(channel, command))
        return await self._answer(answer)

    async def _answer(self, kind: type[F]) -> F:
        while True:
            events = await self.events()
            for at, event in enumerate(events, 1):
                if isinstance(event, Method) and event.index == kind.index:
                    self._early = events[at:]
                    return cast(F, _decoded(event.payload))

    async def events(self) -> list[Reply]:
        """Wait for what comes next: deliveries, confirms, answers.

        Raises OSError, AMQPError: the broker has closed the channel or the connection.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        silence_s = 2 * self.heartbeat_s
        try:
            async with asyncio.timeout(silence_s):
                data = await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise TimeoutError(f"no sign of life of the broker for {silence_s} s") from None
        if not data:
            raise ConnectionResetError("the broker has closed the connection")
        try:
            events = self._parser.feed(data)
            methods = [_decoded(each.payload) for each in events if isinstance(each, Method)]
        except ValueError as error:
            raise IncompatibleProtocolError(str(error)) from None
        for method in methods:
            self._check(method)
        return events

    def _check(self, command: base.Frame) -> None:
        """Raise what a method of the broker says to be over."""
        if isinstance(command, commands.Channel.Close):
            self.write(encode_method(CHANNEL, commands.Channel.CloseOk()))
            raise channel_error(command)
        if isinstance(command, commands.Connection.Close):
            self.write(encode_method(0, commands.Connection.CloseOk()))
            raise _refusal(command)
        if isinstance(command, commands.Channel.Flow):
            self.write(encode_method(CHANNEL, commands.Channel.FlowOk(command.active)))
        if isinstance(command, commands.Basic.Cancel):
            raise ChannelNotFoundEntity("the broker has cancelled the consumer: its queue is gone")


def _refusal(command: commands.Connection.Close) -> AMQPError:
    if command.reply_code == ACCESS_REFUSED:
        return ProbableAuthenticationError(command.reply_text)
    return connection_error(command)


def _decoded(payload: bytes) -> base.Frame:
    kind = _METHODS.get(int.from_bytes(payload[:4], "big"))
    if kind is None:
        raise IncompatibleProtocolError(f"AMQP 0-9-1 has no method {payload[:4].hex()}")
    command = kind.__new__(kind)  # not its constructor, which would check names
    command.unmarshal(payload[4:])
    return command
