"""Real clients on real sockets, with the broker in memory behind the listener."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import amqp
import pika
import pika.exceptions
import pytest
import uvloop
from pamqp import commands, frame

from headrace_broker.codecs.method import encode_method
from headrace_broker.gateways.amqp.connection.listener import AmqpListener
from headrace_broker.model.limits import (
    OUTPUT_DELIVERY_BYTES_MAX,
    READ_BYTES_MAX,
    SOCKET_RECEIVE_BYTES,
)

Body = Callable[[AmqpListener], Awaitable[None]]
Serve = Callable[..., None]


def server(broker: Any, factory: Callable[[], asyncio.AbstractEventLoop]) -> Serve:
    async def session(body: Body, more: dict[str, Any]) -> None:
        listener = AmqpListener(broker, "127.0.0.1", 0, **more)
        await listener.start()
        try:
            async with asyncio.timeout(30):
                await body(listener)
        finally:
            await listener.stop()
        assert len(listener._protocols) == 0

    def run(body: Body, **more: Any) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(session(body, more))

    return run


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request, broker) -> Serve:
    """Runs a coroutine function with a started listener, on either kind of loop."""
    uv = request.param == "uvloop"
    return server(broker, uvloop.new_event_loop if uv else asyncio.new_event_loop)


@pytest.fixture
def serve_once(broker) -> Serve:
    """The same on one kind, for what takes seconds."""
    return server(broker, uvloop.new_event_loop)


def in_thread(client: Callable[[AmqpListener], None]) -> Body:
    """A blocking client beside the loop."""
    return lambda listener: asyncio.to_thread(client, listener)


def parameters(listener: AmqpListener, **more: Any) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", listener.port, **more)


def raw(listener: AmqpListener, broker_frames: bytes = b"", heartbeat_s: int = 0) -> socket.socket:
    """A socket with an open connection and channel 1; earlier answers are read."""
    client = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    client.sendall(b"AMQP\x00\x00\x09\x01")
    read_until(client, commands.Connection.Start)
    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    client.sendall(encode_method(0, start_ok))
    read_until(client, commands.Connection.Tune)
    client.sendall(
        encode_method(0, commands.Connection.TuneOk(2047, 131072, heartbeat_s))
        + encode_method(0, commands.Connection.Open("/"))
        + encode_method(1, commands.Channel.Open())
        + broker_frames
    )
    return client


def read_until(client: socket.socket, wanted: type, data: bytearray | None = None) -> Any:
    """Read frames up to one of a kind and return it; what follows stays in `data`."""
    buffer = bytearray() if data is None else data
    while True:
        try:
            used, _, value = frame.unmarshal(bytes(buffer))
        except Exception:  # noqa: BLE001 - not all there yet
            part = client.recv(65536)
            assert part, f"the broker closed the socket before {wanted}"
            buffer += part
            continue
        del buffer[:used]
        if isinstance(value, wanted):
            return value


# pika


def test_pika_publishes_consumes_and_gets(serve, broker):
    def client(listener: AmqpListener) -> None:
        with pika.BlockingConnection(parameters(listener)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            channel.basic_qos(prefetch_count=10)
            for n in range(200):
                channel.basic_publish(
                    "", "q", b"%d" % n, pika.BasicProperties(headers={"n": n}), mandatory=True
                )
            seen = []
            for method, properties, body in channel.consume("q", inactivity_timeout=10):
                assert properties.headers == {"n": int(body)}
                seen.append(int(body))
                channel.basic_ack(method.delivery_tag)
                if len(seen) == 150:
                    break
            channel.cancel()
            while True:
                method, _, body = channel.basic_get("q", auto_ack=True)
                if method is None:
                    break
                seen.append(int(body))
            assert seen == list(range(200))

    serve(in_thread(client))
    assert [operation for operation, _ in broker.queues["q"].settled].count(1) == 200


def test_pika_moves_a_large_body_through_many_frames(serve):
    body = bytes(range(256)) * 4096 * 5

    def client(listener: AmqpListener) -> None:
        with pika.BlockingConnection(parameters(listener, frame_max=8192)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.confirm_delivery()
            channel.basic_publish("", "q", body)
            assert channel.basic_get("q", auto_ack=True)[2] == body

    serve(in_thread(client))


def test_pika_is_told_what_was_wrong(serve, broker):
    broker.add_queue("q", durable=True)

    def closed(listener: AmqpListener, step: Callable[[Any], Any]) -> tuple[int, str]:
        def provoke(channel: Any) -> None:
            step(channel)
            channel.queue_declare("q", passive=True)  # waits for what the step brought

        with pika.BlockingConnection(parameters(listener)) as connection:
            channel = connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                provoke(channel)
            assert connection.channel().is_open  # only that channel closed
        return caught.value.reply_code, caught.value.reply_text

    def client(listener: AmqpListener) -> None:
        def publish(channel: Any) -> None:
            channel.confirm_delivery()
            channel.basic_publish("nope", "q", b"")

        assert closed(listener, publish) == (404, "NOT_FOUND - no exchange 'nope' in vhost '/'")
        code, text = closed(listener, lambda channel: channel.queue_declare("q", durable=False))
        assert code == 406
        assert "inequivalent arg 'durable' for queue 'q'" in text
        assert closed(listener, lambda channel: channel.basic_ack(42)) == (
            406,
            "PRECONDITION_FAILED - unknown delivery tag 42",
        )
        code, _ = closed(listener, lambda channel: channel.queue_declare("nope", passive=True))
        assert code == 404

    serve(in_thread(client))


def test_pika_is_refused_at_the_door(serve):
    def client(listener: AmqpListener) -> None:
        wrong = pika.PlainCredentials("guest", "wrong")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
            pika.BlockingConnection(parameters(listener, credentials=wrong))
        assert "ACCESS_REFUSED" in str(refused.value)
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as denied:
            pika.BlockingConnection(parameters(listener, virtual_host="nowhere"))
        assert "vhost 'nowhere' not found" in str(denied.value)

    serve(in_thread(client))


def test_pika_gets_returns_and_unroutable(serve):
    def client(listener: AmqpListener) -> None:
        with pika.BlockingConnection(parameters(listener)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(pika.exceptions.UnroutableError) as caught:
                channel.basic_publish("", "nobody", b"lost", mandatory=True)
            assert caught.value.messages[0].body == b"lost"

    serve(in_thread(client))


def test_pika_exclusive_queue_is_free_once_its_connection_closed(serve):
    def client(listener: AmqpListener) -> None:
        for _ in range(3):
            with pika.BlockingConnection(parameters(listener)) as connection:
                connection.channel().queue_declare("mine", exclusive=True)

    serve(in_thread(client))


def test_pika_that_publishes_is_told_that_it_is_blocked(serve, broker):
    async def client(listener: AmqpListener) -> None:
        loop = asyncio.get_running_loop()
        events: list[str] = []
        told = threading.Event()

        def blocking() -> None:
            with pika.BlockingConnection(parameters(listener)) as connection:
                connection.add_on_connection_blocked_callback(
                    lambda _, method: events.append(method.method.reason)
                )
                connection.add_on_connection_unblocked_callback(lambda *_: told.set())
                with connection.channel() as channel:
                    channel.basic_publish("", "nobody", b"x")
                loop.call_soon_threadsafe(broker.block, "low on memory")
                loop.call_soon_threadsafe(broker.block, "")
                while not told.is_set():
                    connection.process_data_events(time_limit=10)

        await asyncio.to_thread(blocking)
        assert events == ["low on memory"]

    serve(client)


def test_pika_hears_of_a_deleted_queue(serve, broker):
    broker.add_queue("q")

    async def client(listener: AmqpListener) -> None:
        loop = asyncio.get_running_loop()

        def blocking() -> None:
            with pika.BlockingConnection(parameters(listener)) as connection:
                channel = connection.channel()
                channel.basic_publish("", "q", b"x")
                bodies = []
                for _, _, body in channel.consume("q", auto_ack=True):
                    bodies.append(body)
                    loop.call_soon_threadsafe(broker.remove_queue, "q")
                assert bodies == [b"x"]

        await asyncio.to_thread(blocking)

    serve(client)


# aio-pika


def test_aio_pika_routes_and_consumes(serve):
    async def client(listener: AmqpListener) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{listener.port}/"
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=50)
            exchange = await channel.declare_exchange("logs", aio_pika.ExchangeType.TOPIC)
            queue = await channel.declare_queue("", exclusive=True)
            await queue.bind(exchange, "app.*")
            await asyncio.gather(
                *[
                    exchange.publish(aio_pika.Message(b"%d" % n), f"app.{n}", mandatory=True)
                    for n in range(500)
                ]
            )
            seen = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        seen.append(int(message.body))
                    if len(seen) == 500:
                        break
            assert seen == list(range(500))

    serve(client)


def test_aio_pika_rejects_and_sees_it_again(serve):
    async def client(listener: AmqpListener) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{listener.port}/"
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
            first = await queue.get()
            assert not first.redelivered
            await first.reject(requeue=True)
            second = await queue.get()
            assert second.redelivered
            await second.ack()
            assert await queue.get(fail=False) is None

    serve(client)


# py-amqp


def test_py_amqp_publishes_and_consumes(serve):
    def client(listener: AmqpListener) -> None:
        host = f"127.0.0.1:{listener.port}"
        with amqp.Connection(host, confirm_publish=True, login_method="AMQPLAIN") as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, auto_delete=False)
            for n in range(50):
                channel.basic_publish(amqp.Message(b"%d" % n), routing_key="q")
            seen: list[bytes] = []

            def take(message: Any) -> None:
                seen.append(message.body)
                channel.basic_ack(message.delivery_tag)

            channel.basic_consume("q", callback=take)
            while len(seen) < 50:
                connection.drain_events(timeout=10)
            assert [int(body) for body in seen] == list(range(50))
            channel.close()

    serve(in_thread(client))


# Sockets


def test_oversized_frame_is_answered_before_the_socket_closes(serve):
    def client(listener: AmqpListener) -> None:
        with raw(listener, b"\x01\x00\x01\x7f\xff\xff\xff" + b"x" * 100_000) as sock:
            close = read_until(sock, commands.Connection.Close)
            assert close.reply_code == 501
            assert "frame_max 131072" in close.reply_text
            sock.sendall(encode_method(0, commands.Connection.CloseOk()))

    serve(in_thread(client))


def test_frames_on_a_closed_channel_close_the_connection(serve):
    def client(listener: AmqpListener) -> None:
        with raw(listener, encode_method(1, commands.Channel.Close(200, "", 0, 0))) as sock:
            read_until(sock, commands.Channel.CloseOk)
            sock.sendall(encode_method(1, commands.Basic.Qos(prefetch_count=1)))
            assert read_until(sock, commands.Connection.Close).reply_code == 504
            sock.sendall(encode_method(0, commands.Connection.CloseOk()))
            assert sock.recv(1) == b""

    serve(in_thread(client))


def test_silent_client_is_cut_off(serve_once):
    def client(listener: AmqpListener) -> None:
        with raw(listener, heartbeat_s=1) as sock:
            received = b"\xce"
            while received:  # heartbeats, then the end
                received = sock.recv(4096)

    serve_once(in_thread(client))


def test_client_that_stops_reading_holds_a_bounded_number_of_bytes(serve, kit, broker):
    """More is waiting than the kernel's buffers and ours hold together; all comes in the end."""
    queue = broker.add_queue("q")
    publisher = kit.Peer(broker, 999).open()
    count, size = 16_000, 4000
    for start in range(0, count, 50):
        numbers = range(start, start + 50)
        publisher.feed(b"".join(kit.publish(1, "", "q", b"%0*d" % (size, n)) for n in numbers))
        publisher.turn()

    async def client(listener: AmqpListener) -> None:
        consume = encode_method(1, commands.Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
        sock = await asyncio.to_thread(raw, listener, consume)
        with sock:
            [protocol] = listener._protocols
            waiting = -1
            while waiting != len(queue.ready) or waiting == count:  # until nothing moves any more
                waiting = len(queue.ready)
                for _ in range(200):
                    await asyncio.sleep(0)
            assert waiting > 0
            assert protocol.backlog() <= OUTPUT_DELIVERY_BYTES_MAX + 2 * broker.window_bytes
            assert protocol.connection is not None
            channel = protocol.connection.channels.find(1)
            assert channel is not None
            runs = [run for each in channel.consumers.values() for run in each.held]
            held = sum([len(run.positions) for run in runs])
            assert held * size <= broker.window_bytes + size
            await asyncio.to_thread(read_bodies, sock)

    def read_bodies(sock: socket.socket) -> None:
        seen = 0
        rest = b""
        while seen < count:
            rest += sock.recv(1 << 20)
            while len(rest) > size + 200:
                at = rest.index(b"\x03\x00\x01" + size.to_bytes(4, "big"))
                assert int(rest[at + 7 : at + 7 + size]) == seen
                seen += 1
                rest = rest[at + 8 + size :]
            if seen == count - 1 and rest.endswith(b"\xce") and b"\x03\x00\x01" in rest:
                seen += 1

    serve(client)
    assert len(queue.ready) == 0


def test_flooding_client_is_read_in_pieces_and_others_between_them(serve, kit, broker):
    """It sends 16 MiB at once; what another client asks is answered long before all are read."""
    queue = broker.add_queue("q")
    flood = kit.publish(1, "", "q", bytes(1000)) * 16_000

    async def client(listener: AmqpListener) -> None:
        loud = await asyncio.to_thread(raw, listener)
        quiet = await asyncio.to_thread(raw, listener)
        with loud, quiet:
            sending = asyncio.create_task(asyncio.to_thread(loud.sendall, flood))
            quiet.sendall(encode_method(2, commands.Channel.Open()))
            opened = asyncio.create_task(
                asyncio.to_thread(read_until, quiet, commands.Channel.OpenOk)
            )
            most = before = 0
            while len(queue.ready) < 16_000:
                await asyncio.sleep(0)
                most = max(most, len(queue.ready) - before)
                before = len(queue.ready)
            await asyncio.gather(sending, opened)
            assert most * 1000 <= 2 * READ_BYTES_MAX

    serve(client)


def test_kernel_keeps_little_for_a_client_that_is_not_read(serve):
    async def client(listener: AmqpListener) -> None:
        sock = await asyncio.to_thread(raw, listener)
        with sock:
            [protocol] = listener._protocols
            assert protocol._transport is not None
            accepted = protocol._transport.get_extra_info("socket")
            size = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert size <= SOCKET_RECEIVE_BYTES

    serve(client)


def test_stop_asks_clients_to_go(serve):
    async def client(listener: AmqpListener) -> None:
        sock = await asyncio.to_thread(raw, listener)
        with sock:
            reading = asyncio.to_thread(read_until, sock, commands.Connection.Close)
            closing = asyncio.create_task(reading)
            stopping = asyncio.create_task(listener.stop())
            close = await closing
            assert close.reply_code == 320
            sock.sendall(encode_method(0, commands.Connection.CloseOk()))
            await stopping

    serve(client)


def test_connection_above_the_limit_is_closed(serve, broker):
    def client(listener: AmqpListener) -> None:
        with (
            raw(listener) as first,
            socket.create_connection(("127.0.0.1", listener.port), timeout=20) as second,
        ):
            with contextlib.suppress(ConnectionError):
                second.sendall(b"AMQP\x00\x00\x09\x01")
                assert second.recv(1) == b""
            first.sendall(encode_method(0, commands.Connection.Close(200, "", 0, 0)))
            read_until(first, commands.Connection.CloseOk)

    serve(in_thread(client), connections_max=1)
    assert broker.client_counts.refused_connections["node"] == 1
