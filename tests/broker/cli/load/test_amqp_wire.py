"""A load's connection: its bytes, and refusals of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiormq import exceptions
from pamqp import base, commands

from headrace_broker.cli.load.amqp_wire import AmqpWire, message_parts, open_wire
from headrace_broker.codecs.event import Method
from headrace_broker.codecs.frame import PROTOCOL_HEADER
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.codecs.method import decode_properties, encode_method, method_name
from headrace_broker.model.message import Publish

STARTED = encode_method(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
UNKNOWN = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\xff\xff\xce"
TUNED = encode_method(0, commands.Connection.Tune(10, 4096, 60))


@pytest.mark.parametrize("size", [8, 9, 4088, 4089, 10_000])
def test_a_message_is_whole_around_its_stamp(size: int) -> None:
    properties = commands.Basic.Properties(delivery_mode=2)
    before, after = message_parts("a queue/ä", properties, size, 8, 4096)
    parser = FrameParser(4096, 1 << 20)
    _, first, second = parser.feed(PROTOCOL_HEADER + 2 * (before + b"12345678" + after))
    for message in (first, second):
        assert isinstance(message, Publish)
        assert message.body == b"12345678" + bytes(size - 8)
        assert (message.channel, message.route) == (1, b"\0\x0aa queue/\xc3\xa4")
        assert decode_properties(message.properties).delivery_mode == 2


class Broker:
    """Answers a client's methods in turn, each with some bytes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heard: list[int] = []
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = FrameParser(4096, 1 << 20)
        while data := await reader.read(4096):
            for event in parser.feed(data):
                if isinstance(event, Method):
                    self.heard.append(event.index)
                    if event.index in (commands.Connection.TuneOk.index, CLOSE_OK):
                        continue
                if self.answers:
                    writer.write(self.answers.pop(0))
        writer.close()
        self.left.set()


CLOSE_OK = commands.Channel.CloseOk.index
OPENED = (
    STARTED,
    TUNED,
    encode_method(0, commands.Connection.OpenOk()),
    encode_method(1, commands.Channel.OpenOk()),
)


def refused(code: int, text: str, channel: int) -> bytes:
    kind: Callable[[int, str, int, int], base.Frame] = commands.Channel.Close
    if channel == 0:
        kind = commands.Connection.Close
    return encode_method(channel, kind(code, text, 0, 0))


async def ask(broker: Broker) -> AmqpWire:
    """Open a connection, ask for confirms, and close it."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            async with open_wire(f"127.0.0.1:{port}", ("u", "p"), "/", None) as wire:
                await wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
        finally:
            await broker.left.wait()
    return wire


def test_a_connection_is_opened_used_and_closed() -> None:
    answers = (*OPENED, encode_method(1, commands.Confirm.SelectOk()))
    broker = Broker(*answers, encode_method(0, commands.Connection.CloseOk()))
    wire = asyncio.run(ask(broker))
    assert wire.frame_max == 4096
    names = [method_name(index) for index in broker.heard]
    assert names == [
        "connection.start-ok",
        "connection.tune-ok",
        "connection.open",
        "channel.open",
        "confirm.select",
        "connection.close",
    ]


@pytest.mark.parametrize(
    ("answers", "error", "text"),
    [
        ((STARTED, refused(403, "no", 0)), exceptions.ProbableAuthenticationError, "no"),
        ((STARTED, TUNED, refused(530, "no", 0)), exceptions.ConnectionNotAllowed, "no"),
        ((*OPENED, refused(404, "no", 1)), exceptions.ChannelNotFoundEntity, "no"),
        ((*OPENED, refused(406, "no", 1)), exceptions.ChannelPreconditionFailed, "no"),
        (
            (*OPENED, encode_method(1, commands.Basic.Cancel("ctag"))),
            exceptions.ChannelNotFoundEntity,
            "its queue is gone",
        ),
        ((STARTED, UNKNOWN), exceptions.IncompatibleProtocolError, "no method"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), exceptions.IncompatibleProtocolError, "a frame"),
    ],
)
def test_what_a_broker_refuses_is_raised(
    answers: tuple[bytes, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        asyncio.run(ask(Broker(*answers)))
