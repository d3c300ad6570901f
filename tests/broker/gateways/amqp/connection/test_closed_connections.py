"""Connections that are closed are freed at once."""

from __future__ import annotations

import asyncio
import gc
import socket

import pika
import pytest
import uvloop
from pamqp import commands
from tests.broker.gateways.amqp.connection.test_listener import parameters, raw, read_until, server
from tests.broker.gateways.amqp.garbage import garbage

from headrace_broker.codecs.method import encode_method
from headrace_broker.gateways.amqp.connection.connection import Connection
from headrace_broker.gateways.amqp.connection.listener import AmqpListener
from headrace_broker.gateways.amqp.connection.protocol import AmqpProtocol
from headrace_broker.gateways.amqp.connection.socket_output import SocketOutput
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput


def _closes(listener: AmqpListener) -> None:
    with pika.BlockingConnection(parameters(listener)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"body")
        assert next(channel.consume("q", inactivity_timeout=10))[2] == b"body"


def _is_cut_off(listener: AmqpListener) -> None:
    asked = commands.Queue.Declare(queue="q", durable=True), commands.Basic.Consume(queue="q")
    with raw(listener, b"".join(encode_method(1, each) for each in asked)) as client:
        read_until(client, commands.Basic.ConsumeOk)


def _is_refused(listener: AmqpListener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        read_until(client, commands.Connection.Start)
        wrong = commands.Connection.StartOk({}, "PLAIN", "\0guest\0wrong", "en_US")
        client.sendall(encode_method(0, wrong))
        while client.recv(4096):
            pass


PARTS = (AmqpProtocol, Connection, ConnectionOutput, SocketOutput)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("once", [_closes, _is_cut_off, _is_refused])
def test_a_connection_that_is_closed_leaves_nothing_to_the_garbage_collector(broker, once, loop):
    left: list[object] = []

    async def client(listener: AmqpListener) -> None:
        async def closed() -> None:
            await asyncio.to_thread(once, listener)
            while listener._protocols:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

        await closed()
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await closed()
            await asyncio.sleep(0)
            for client in broker.clients:
                vars(client).clear()  # ended sessions refer to nothing
            left.extend(garbage())
        finally:
            gc.enable()

    server(broker, loop)(client)
    assert [each for each in left if isinstance(each, PARTS)] == []


class ResetTransport(asyncio.Transport):
    """A socket whose client has reset it already: it has no peer any more."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 5672)})
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


def test_a_socket_that_was_reset_before_its_turn_is_no_connection(broker):
    async def client(listener: AmqpListener) -> None:
        protocol = listener._accept()
        assert isinstance(protocol, AmqpProtocol)
        transport = ResetTransport()
        try:
            protocol.connection_made(transport)
            assert transport.aborted
            assert protocol.connection is None
        finally:
            protocol.connection_lost(None)
        assert len(listener._protocols) == 0

    server(broker, uvloop.new_event_loop)(client)
