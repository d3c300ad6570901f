"""Wrong input gets the specified reply code, a text that names the cause, and does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pika
import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.raw_client import RawClient
from pamqp import commands
from pamqp.body import ContentBody

Name = Callable[[str], str]


@pytest.fixture
def raw(shared_cluster: Cluster) -> Iterator[RawClient]:
    client = RawClient(shared_cluster.port("n1"))
    yield client
    client.close()


def connect_error(parameters: pika.ConnectionParameters) -> str:
    with pytest.raises(pika.exceptions.AMQPConnectionError) as refused:
        pika.BlockingConnection(parameters)
    return repr(refused.value)


def test_wrong_password_is_refused(shared_cluster: Cluster) -> None:
    wrong = pika.PlainCredentials("guest", "wrong")
    parameters = pika.ConnectionParameters(
        "127.0.0.1", shared_cluster.port("n1"), credentials=wrong
    )
    assert "403" in connect_error(parameters)


def test_unknown_vhost_is_refused_by_name(shared_cluster: Cluster) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", shared_cluster.port("n1"), "nowhere")
    text = connect_error(parameters)
    assert "530" in text
    assert "nowhere" in text


def test_oversized_frame_closes_the_connection(raw: RawClient) -> None:
    raw.log_in().open_channel()
    raw.socket.sendall(b"\x01\x00\x01" + (1 << 20).to_bytes(4, "big") + bytes(1000))
    closed = raw.expect(commands.Connection.Close)
    assert closed.reply_code == 501
    assert "1048584" in closed.reply_text


def test_frames_of_an_unopened_channel_close_the_connection(raw: RawClient) -> None:
    raw.log_in()
    raw.send(commands.Queue.Declare(queue="q"), 7)
    closed = raw.expect(commands.Connection.Close)
    assert closed.reply_code == 504
    assert "7" in closed.reply_text


def test_body_without_publish_closes_the_connection(raw: RawClient) -> None:
    raw.log_in().open_channel()
    raw.send(ContentBody(b"stray"), 1)
    assert raw.expect(commands.Connection.Close).reply_code == 505


def test_garbage_instead_of_a_header_is_answered_with_the_protocol(raw: RawClient) -> None:
    raw.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert raw.socket.recv(8) == b"AMQP\x00\x00\x09\x01"
    assert raw.socket.recv(1) == b""


def test_silent_client_is_disconnected(shared_cluster: Cluster) -> None:
    client = RawClient(shared_cluster.port("n2"), heartbeat=1).log_in()
    with pytest.raises((EOFError, ConnectionResetError)):
        client.receive_for_ever()
    client.close()


def test_soft_errors_close_the_channel_only(shared_cluster: Cluster, queue_name: Name) -> None:
    connection = shared_cluster.connect("n1")
    missing = connection.channel()
    missing.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as no_exchange:
        missing.basic_publish(queue_name("nowhere"), "k", b"x")
    assert no_exchange.value.reply_code == 404
    assert queue_name("nowhere") in no_exchange.value.reply_text

    queue = queue_name("q")
    other = connection.channel()
    other.queue_declare(queue, durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as inequivalent:
        other.queue_declare(queue, durable=False)
    assert inequivalent.value.reply_code == 406
    assert "durable" in inequivalent.value.reply_text

    acks = connection.channel()
    acks.basic_ack(99)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as unknown_tag:
        acks.queue_declare(queue, passive=True)
    assert unknown_tag.value.reply_code == 406
    assert "99" in unknown_tag.value.reply_text

    alive = connection.channel()
    assert alive.queue_declare(queue, passive=True).method.message_count == 0


def test_argument_of_a_wrong_type_is_refused_by_name(
    shared_cluster: Cluster, queue_name: Name
) -> None:
    channel = shared_cluster.connect("n1").channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(queue_name("q"), durable=True, arguments={"x-max-length": "1"})
    assert refused.value.reply_code == 406
    assert "x-max-length" in refused.value.reply_text
    assert shared_cluster.queue(queue_name("q")) is None
