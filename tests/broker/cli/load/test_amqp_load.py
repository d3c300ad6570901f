"""Publishers and consumers of a load over AMQP, beside a scripted broker."""

from __future__ import annotations

import asyncio

import pytest
from aiormq import exceptions
from pamqp import base, body, commands, frame, header

from headrace_broker.cli.load import run
from headrace_broker.cli.load.amqp import AmqpLoad
from headrace_broker.cli.load.plan import Plan, Tally
from headrace_broker.cli.load.report import Summary
from headrace_broker.cli.load.run import Run
from headrace_broker.codecs.event import Acked, Method
from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.codecs.method import encode_method
from headrace_broker.model.message import Publish

ANSWERS: dict[int, tuple[int, base.Frame]] = {
    commands.Connection.StartOk.index: (0, commands.Connection.Tune(10, 4096, 60)),
    commands.Connection.Open.index: (0, commands.Connection.OpenOk()),
    commands.Channel.Open.index: (1, commands.Channel.OpenOk()),
    commands.Confirm.Select.index: (1, commands.Confirm.SelectOk()),
    commands.Basic.Qos.index: (1, commands.Basic.QosOk()),
    commands.Basic.Consume.index: (1, commands.Basic.ConsumeOk("ctag")),
    commands.Connection.Close.index: (0, commands.Connection.CloseOk()),
}
START = encode_method(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))


class Broker:
    """One queue; each message is confirmed, and delivered to its consumer."""

    def __init__(self, confirm: base.Frame | None = None, confirms: bool = True) -> None:
        self.confirm = confirm  # in place of an acknowledgement
        self.confirms = confirms
        self.consumer: asyncio.StreamWriter | None = None
        self.waiting: list[bytes] = []
        self.delivered = 0
        self.acked = 0
        self.closed = 0
        self.served: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = asyncio.Event()
        self.served.append(left)
        parser = FrameParser(4096, 1 << 20)
        parser.feed(await reader.readexactly(8))
        writer.write(START)
        tag = 0
        while data := await reader.read(65536):
            for event in parser.feed(data):
                if isinstance(event, Publish):
                    tag += 1
                    self.publish(writer, tag, event.body)
                elif isinstance(event, Acked):
                    self.acked = int(event.delivery_tag)
                elif isinstance(event, Method):
                    self.answer(writer, event.index)
        writer.close()
        left.set()

    def answer(self, writer: asyncio.StreamWriter, index: int) -> None:
        if index in ANSWERS:
            writer.write(encode_method(*ANSWERS[index]))
        if index == commands.Basic.Consume.index:
            self.consumer = writer
            self.deliver()
        self.closed += index == commands.Connection.Close.index

    def publish(self, writer: asyncio.StreamWriter, tag: int, payload: bytes) -> None:
        if self.confirms:
            writer.write(encode_method(1, self.confirm or commands.Basic.Ack(tag)))
        self.waiting.append(payload)
        self.deliver()

    def deliver(self) -> None:
        if self.consumer is None:
            return
        for payload in self.waiting:
            self.delivered += 1
            parts = (
                commands.Basic.Deliver("ctag", self.delivered, False, "", "q"),
                header.ContentHeader(0, len(payload), commands.Basic.Properties()),
                body.ContentBody(payload),
            )
            self.consumer.write(b"".join(frame.marshal(part, 1) for part in parts))
        self.waiting = []


async def perf(
    broker: Broker, consumers: int = 1, window: int = 10, rate: int = 500, prefetch: int = 8
) -> Summary:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server:
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        plan = Plan(at, ("u", "p"), "/", ("q",), 1, consumers, 100, window, rate, prefetch, True)
        tally, ended = Tally(), asyncio.Event()
        load = AmqpLoad(plan, tally, ended)
        try:
            return await Run(plan, tally, ended, lambda _: None).run(load, 0.1)
        finally:
            for left in broker.served:
                await left.wait()


@pytest.mark.parametrize("window", [1, 10, 0])
@pytest.mark.parametrize("prefetch", [1, 8, 0])
def test_what_is_sent_is_confirmed_and_comes(window: int, prefetch: int) -> None:
    broker = Broker(confirms=window > 0)
    summary = asyncio.run(perf(broker, window=window, prefetch=prefetch))
    assert summary.sent == summary.received > 0
    assert summary.confirmed == (summary.sent if window else 0)
    assert broker.acked == (summary.sent if prefetch else 0)
    assert broker.closed == 2, "publisher and consumer say that they go"


def test_a_refused_message_ends_the_load() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(perf(Broker(commands.Basic.Nack(1)), consumers=0))
    found: BaseException = raised.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, exceptions.DeliveryError)


def test_a_load_ends_though_nothing_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "DRAIN_S_MAX", 0.01)
    broker = Broker(confirms=False)
    summary = asyncio.run(perf(broker, consumers=0, rate=0))
    assert (summary.sent, summary.confirmed) == (10, 0)
    assert broker.closed == 1
