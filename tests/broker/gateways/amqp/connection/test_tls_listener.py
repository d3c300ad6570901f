"""Real clients over TLS, with the broker in memory behind the listener."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest
import uvloop
from e2e.harness.authority import Authority
from pika.credentials import ExternalCredentials

from headrace_broker.config.tls import TlsSection
from headrace_broker.gateways.amqp.connection.listener import AmqpListener
from headrace_broker.model.definition import User
from headrace_broker.runtime.security.tls import ServerTls

Body = Callable[[AmqpListener], Awaitable[None]]


class Side:
    """A listener's configuration and what clients make of it."""

    def __init__(self, certificates, directory) -> None:
        self.certificates = certificates
        self.directory = directory

    def server(self, **more: Any) -> ServerTls:
        section = {
            "certificate_file": str(self.certificates.server.certificate),
            "key_file": str(self.certificates.server.key),
            "ca_file": str(self.certificates.authority.file),
            "verify": "peer",
            "login_from": "common_name",
        }
        return ServerTls(TlsSection(**(section | more)))

    def client(self, pair=None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificates.authority.file))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


@pytest.fixture
def side(certificates, tmp_path) -> Side:
    return Side(certificates, tmp_path)


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request, broker):
    """Runs a coroutine function with a started listener, on either kind of loop."""
    uv = request.param == "uvloop"

    async def session(tls: ServerTls, body: Body, more: dict[str, Any]) -> None:
        listener = AmqpListener(broker, "127.0.0.1", 0, tls, **more)
        await listener.start()
        try:
            async with asyncio.timeout(30):
                await body(listener)
        finally:
            await listener.stop()
        assert len(listener._protocols) == 0

    def run(tls: ServerTls, body: Body, **more: Any) -> None:
        factory = uvloop.new_event_loop if uv else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(session(tls, body, more))

    return run


def in_thread(client: Callable[[AmqpListener], None]) -> Body:
    return lambda listener: asyncio.to_thread(client, listener)


def parameters(listener: AmqpListener, context: ssl.SSLContext, **more: Any) -> Any:
    options = pika.SSLOptions(context, "localhost")
    return pika.ConnectionParameters("127.0.0.1", listener.port, ssl_options=options, **more)


def raw(listener: AmqpListener, context: ssl.SSLContext) -> bytes:
    """Return the server's whole answer to the protocol's header, after the handshake."""
    plain = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        return client.recv(65536)


def test_pika_works_over_tls_with_a_password(serve, side, broker):
    seen: list[Any] = []

    def client(listener: AmqpListener) -> None:
        with pika.BlockingConnection(parameters(listener, side.client())) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            body = bytes(range(256)) * 8192  # two MiB: many records, many frames
            channel.basic_publish("", "q", body)
            assert channel.basic_get("q", auto_ack=True)[2] == body
            seen.extend(broker.connections.values())

    serve(side.server(), in_thread(client))
    [info] = seen
    assert info.tls.version in ("TLSv1.2", "TLSv1.3")
    assert (info.tls.subject, info.tls.login, info.mechanism) == ("", "", "PLAIN")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_pika_logs_in_with_its_certificate(serve, side, certificates, broker, version):
    seen: list[Any] = []

    def client(listener: AmqpListener) -> None:
        context = side.client(certificates.client)
        context.minimum_version = context.maximum_version = version
        external = parameters(listener, context, credentials=ExternalCredentials())
        with pika.BlockingConnection(external) as connection:
            assert connection.channel().is_open
            seen.extend(broker.connections.values())

    serve(side.server(fail_if_no_peer_cert=True), in_thread(client))
    [info] = seen
    assert (info.user, info.mechanism) == ("guest", "EXTERNAL")
    assert (info.tls.subject, info.tls.issuer) == ("CN=guest,O=mill\\, race", "CN=ca")


def test_aio_pika_logs_in_with_its_certificate(serve, side, certificates):
    async def client(listener: AmqpListener) -> None:
        url = f"amqps://127.0.0.1:{listener.port}/?auth=external"
        context = side.client(certificates.client)
        async with await aio_pika.connect(url, ssl_context=context) as connection:
            queue = await (await connection.channel()).declare_queue("q")
            assert queue.name == "q"

    serve(side.server(), client)


def test_a_user_may_be_named_by_the_whole_subject(serve, side, certificates, broker):
    asked: list[str] = []

    def admits(user: str, host: str) -> bool:
        asked.append(user)
        return True

    broker.authenticator.admits = admits
    broker.rules.put_user(User("CN=guest,O=mill\\, race", b"", b""))

    def client(listener: AmqpListener) -> None:
        context = side.client(certificates.client)
        pika.BlockingConnection(
            parameters(listener, context, credentials=ExternalCredentials())
        ).close()

    serve(side.server(login_from="distinguished_name"), in_thread(client))
    assert asked == ["CN=guest,O=mill\\, race"]


@pytest.mark.parametrize("who", ["nobody", "unknown"])
def test_external_without_a_known_user_is_refused(serve, side, certificates, who):
    pair = None if who == "nobody" else certificates.authority.sign("/CN=bob", "bob")

    def client(listener: AmqpListener) -> None:
        external = parameters(listener, side.client(pair), credentials=ExternalCredentials())
        with pytest.raises(pika.exceptions.ProbableAuthenticationError, match=r"403.*EXTERNAL"):
            pika.BlockingConnection(external)

    serve(side.server(), in_thread(client))


def test_external_is_offered_where_certificates_name_users(serve, side):
    def client(listener: AmqpListener) -> None:
        assert b"PLAIN AMQPLAIN EXTERNAL" in raw(listener, side.client())

    serve(side.server(), in_thread(client))


def test_external_is_not_offered_where_certificates_name_nobody(serve, side, certificates):
    def client(listener: AmqpListener) -> None:
        context = side.client(certificates.client)
        assert b"EXTERNAL" not in raw(listener, context)
        external = parameters(listener, context, credentials=ExternalCredentials())
        with pytest.raises(pika.exceptions.AMQPError):
            pika.BlockingConnection(external)
        pika.BlockingConnection(parameters(listener, context)).close()

    serve(side.server(login_from="none"), in_thread(client))


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("stranger", "the client's certificate is refused: unable to get local issuer certificate"),
        ("expired", "the client's certificate is refused: certificate has expired"),
        ("nobody", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    ],
)
def test_a_client_without_a_valid_certificate_is_refused(
    serve, side, certificates, caplog, who, said
):
    pair = {
        "stranger": lambda: certificates.stranger.sign("/CN=guest", "forged"),
        "expired": lambda: certificates.authority.sign("/CN=guest", "expired", days=-1),
        "nobody": lambda: None,
    }[who]()

    def client(listener: AmqpListener) -> None:
        with pytest.raises((OSError, pika.exceptions.AMQPError)):
            pika.BlockingConnection(parameters(listener, side.client(pair)))

    with caplog.at_level(logging.WARNING):
        serve(side.server(fail_if_no_peer_cert=True), in_thread(client))
    assert said in caplog.text


def test_a_certificate_that_was_not_asked_for_proves_nothing(serve, side, certificates):
    def client(listener: AmqpListener) -> None:
        context = side.client(certificates.client)
        external = parameters(listener, context, credentials=ExternalCredentials())
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(external)

    serve(side.server(verify="none"), in_thread(client))


def test_the_client_refuses_a_server_that_it_does_not_know(serve, side, certificates):
    def client(listener: AmqpListener) -> None:
        context = ssl.create_default_context(cafile=str(certificates.stranger.file))
        with pytest.raises(ssl.SSLCertVerificationError):
            raw(listener, context)

    serve(side.server(), in_thread(client))


def test_a_client_that_does_not_speak_tls_is_cut_off(serve, side, broker):
    def client(listener: AmqpListener) -> None:
        with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as plain:
            plain.sendall(b"AMQP\x00\x00\x09\x01")
            while plain.recv(4096):
                pass

    serve(side.server(), in_thread(client))
    assert broker.connections == {}


def test_handshakes_count_as_connections_and_end_at_the_stop(serve, side):
    sockets: list[socket.socket] = []

    def client(listener: AmqpListener) -> None:
        address = ("127.0.0.1", listener.port)
        sockets.extend(socket.create_connection(address, timeout=20) for _ in range(2))
        with socket.create_connection(address, timeout=20) as third:
            assert third.recv(1) == b""

    serve(side.server(), in_thread(client), connections_max=2)
    for each in sockets:
        each.close()


@pytest.mark.parametrize("turns", range(8))
def test_who_has_just_connected_is_cut_off_at_the_stop(serve, side, turns):
    clients: list[socket.socket] = []

    async def connect(listener: AmqpListener) -> None:
        clients.append(socket.create_connection(("127.0.0.1", listener.port), timeout=30))
        for _ in range(turns):
            await asyncio.sleep(0)

    serve(side.server(), connect)
    gc.collect()
    with clients[0], contextlib.suppress(ConnectionResetError):
        assert clients[0].recv(1) == b""


def test_connections_after_a_renewal_use_the_new_certificates(serve, side, certificates):
    authority = side.directory / "authority.pem"
    authority.write_bytes(certificates.authority.file.read_bytes())
    newcomer = certificates.stranger.sign("/CN=guest", "newcomer")
    tls = side.server(ca_file=str(authority), fail_if_no_peer_cert=True)

    def client(listener: AmqpListener) -> None:
        before = parameters(
            listener, side.client(certificates.client), credentials=ExternalCredentials()
        )
        after = parameters(listener, side.client(newcomer), credentials=ExternalCredentials())
        with pika.BlockingConnection(before) as lasting:
            with pytest.raises((OSError, pika.exceptions.AMQPError)):
                pika.BlockingConnection(after)
            authority.write_bytes(certificates.stranger.file.read_bytes())
            tls.renew()
            pika.BlockingConnection(after).close()
            with pytest.raises((OSError, pika.exceptions.AMQPError)):
                pika.BlockingConnection(before)
            assert lasting.channel().is_open

    serve(tls, in_thread(client))


def test_a_client_whose_certificate_was_revoked_is_refused_after_the_next_renewal(
    serve, side, caplog
):
    authority = Authority(side.directory, "revoking")
    guest = authority.sign("/CN=guest", "revoked")
    lists = authority.revoke()
    tls = side.server(ca_file=str(authority.file), crl_file=str(lists), fail_if_no_peer_cert=True)

    def client(listener: AmqpListener) -> None:
        external = parameters(listener, side.client(guest), credentials=ExternalCredentials())
        with pika.BlockingConnection(external) as lasting:
            authority.revoke(guest.certificate)
            tls.renew()
            with pytest.raises((OSError, pika.exceptions.AMQPError)):
                pika.BlockingConnection(external)
            assert lasting.channel().is_open

    with caplog.at_level(logging.WARNING):
        serve(tls, in_thread(client))
    assert "the client's certificate is refused: certificate revoked" in caplog.text
