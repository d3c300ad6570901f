"""Nodes that prove to each other who they are, over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from e2e.harness.authority import Authority, Pair

from headrace_protos.raftlog.v1.transport_pb2 import SnapshotRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import (
    RaftBulkStub,
    RaftTransportServicer,
    add_RaftTransportServicer_to_server,
)
from headrace_raftlog.model.message import HEARTBEAT, Message
from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.transport.frame_connection import open_frames
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.security import MutualTls, NoSecurity, security_of

NAMES = {1: "n1", 2: "n2", 3: "n3"}


class Keys:
    """Certificates of three nodes, and of those who should not get in."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "cluster")
        self.stranger = Authority(directory, "stranger")
        self.nodes = {node: self.sign(self.authority, name) for node, name in NAMES.items()}

    def sign(self, authority: Authority, name: str, days: int = 30, file: str = "") -> Pair:
        # Only the alternative name counts: the common name is everybody's.
        return authority.sign(
            "/CN=node", f"{authority.file.stem}-{file or name}", days, f"DNS:{name}"
        )

    def of(self, pair: Pair, *authorities: Authority) -> NodeCertificate:
        roots = b"".join(each.file.read_bytes() for each in authorities or (self.authority,))
        return NodeCertificate(pair.certificate.read_bytes(), pair.key.read_bytes(), roots)


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Keys:
    return Keys(tmp_path_factory.mktemp("nodes"))


def tls(certificate: NodeCertificate) -> MutualTls:
    return MutualTls(lambda: certificate, lambda node: NAMES.get(node, ""))


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(main())


def test_further_processes_of_a_node_show_its_certificate(keys: Keys) -> None:
    own = keys.of(keys.nodes[1])
    peer = StreamIdentity("test", 65, 1, 65, {}, f"{NAMES[1]}:1")  # its id is that of no other
    shown = keys.nodes[1].certificate.read_bytes()
    for known in (f"{NAMES[1]}:1", ""):
        MutualTls(lambda: own, {65: known}.__getitem__).check_caller(peer, shown)
    with pytest.raises(StreamRefusedError, match=NAMES[2]):
        MutualTls(lambda: own, lambda node: f"{NAMES[1]}:1").check_caller(
            peer, keys.nodes[2].certificate.read_bytes()
        )


def heartbeat(source: int, target: int) -> Message:
    return Message(HEARTBEAT, 7, source, target, 1)


@pytest.mark.usefixtures("over_grpc")
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nodes_with_certificates_of_their_own_talk(keys, node_type, addresses, loop_factory):
    async def body() -> None:
        nodes = [node_type(n, addresses, security=tls(keys.of(keys.nodes[n]))) for n in NAMES]
        for node in nodes:
            await node.start()
        one, two, _ = nodes
        await one.up(2)
        await two.up(1)
        await one.up(3)
        assert one.transport.post(heartbeat(1, 2))
        assert one.transport.send(2, b"payload")
        one.transport.flush()
        await two.events.until(lambda: bool(two.events.messages and two.events.payloads))
        assert two.events.payloads == [(1, b"payload")]
        large = bytes(20 << 20)
        assert one.transport.send(2, large)
        await two.events.until(lambda: two.events.payloads[1:] == [(1, large)])
        for node in nodes:
            await node.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


async def attempt(caller: Any, channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
    """Ask for a stream; returns the refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.ask(channel)
    return caught.value.code(), caught.value.details() or ""


def test_nobody_without_the_clusters_certificate_sends_one_message(
    keys, node_type, caller_type, identity_of, addresses
):
    forged = keys.sign(keys.stranger, "n2")
    expired = keys.sign(keys.authority, "n2", days=-1, file="n2-expired")
    root = keys.authority.file.read_bytes()
    override = ("grpc.ssl_target_name_override", "n1")

    def channel(address: str, pair: Pair | None) -> grpc.aio.Channel:
        key = pair.key.read_bytes() if pair is not None else None
        certificate = pair.certificate.read_bytes() if pair is not None else None
        credentials = grpc.ssl_channel_credentials(root, key, certificate)
        options = [override, ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(address, credentials, options=options)

    async def body() -> None:
        one = node_type(1, addresses, security=tls(keys.of(keys.nodes[1])))
        await one.start()
        for make in (
            lambda: grpc.aio.insecure_channel(addresses[1]),
            lambda: channel(addresses[1], None),
            lambda: channel(addresses[1], forged),
            lambda: channel(addresses[1], expired),
        ):
            code, _ = await attempt(caller_type(identity_of(2), addresses[1], 1), make())
            assert code is grpc.StatusCode.UNAVAILABLE  # the handshake failed
        session = one.transport.sessions[2]
        assert (session.frames_received, session.messages_received) == (0, 0)
        assert not one.events.met
        assert not one.events.messages
        assert not one.events.payloads
        await one.stop()

    run(body)


class Shows(MutualTls):
    """Connects to send frames with a certificate of its own choice, or with none."""

    def __init__(self, rightful: NodeCertificate, shown: ssl.SSLContext | None) -> None:
        super().__init__(lambda: rightful, lambda node: NAMES.get(node, ""))
        self._shown = shown

    def outgoing(self) -> ssl.SSLContext | None:
        return self._shown

    def check_called(self, peer: int, tls: ssl.SSLObject | None) -> None:
        """Be content with anybody."""


def test_a_ticket_alone_lets_nobody_send_frames(
    keys, node_type, caller_type, identity_of, addresses
):
    def context(*pairs: Pair) -> ssl.SSLContext:
        found = ssl.create_default_context(cafile=str(keys.authority.file))
        found.check_hostname = False
        for pair in pairs:
            found.load_cert_chain(pair.certificate, pair.key)
        return found

    forged = context(keys.sign(keys.stranger, "n2"))
    expired = context(keys.sign(keys.authority, "n2", days=-1, file="n2-expired"))
    old = context(keys.nodes[2])
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def body() -> None:
        one = node_type(1, addresses, security=tls(keys.of(keys.nodes[1])))
        await one.start()
        rightful = keys.of(keys.nodes[2])
        for shown in (None, context(), forged, expired, old):
            caller = caller_type(identity_of(2), addresses[1], 1, Shows(rightful, shown))
            with pytest.raises(OSError, match="cannot send frames to"):
                await caller.enter()
        session = one.transport.sessions[2]
        assert (session.frames_received, session.messages_received) == (0, 0)
        assert not one.events.met
        rightly = caller_type(identity_of(2), addresses[1], 1, tls(rightful))
        await rightly.enter()
        await one.events.until(lambda: bool(one.events.met))
        await one.stop()

    run(body)


@pytest.mark.parametrize("kind", ["another node's", "a client's", "a revoked"])
def test_a_ticket_is_taken_of_the_node_alone_that_it_was_given_to(
    keys, node_type, caller_type, identity_of, addresses, kind, over_grpc
):
    clients = keys.authority.sign(
        "/CN=n3", f"client-{len(addresses)}", 30, "DNS:n3", "extendedKeyUsage=clientAuth"
    )
    shown = {"another node's": keys.nodes[2], "a client's": clients}.get(kind, keys.nodes[3])

    def refuses(pem: bytes) -> str:
        return "it was revoked" if kind == "a revoked" and asked else ""

    asked: list[StreamPlace] = []

    async def body() -> None:
        own = dataclasses.replace(keys.of(keys.nodes[1]), refuses=refuses)
        one = node_type(1, addresses, security=tls(own))
        await one.start()
        rightful = caller_type(identity_of(3), addresses[1], 1, tls(keys.of(keys.nodes[3])))
        place = await rightful.ask()
        asked.append(place)
        context = ssl.create_default_context(cafile=str(keys.authority.file))
        context.check_hostname = False
        context.load_cert_chain(shown.certificate, shown.key)
        shows = tls(keys.of(shown)) if over_grpc else Shows(keys.of(keys.nodes[3]), context)
        thief = caller_type(identity_of(3), addresses[1], 1, shows)
        await thief.refused(place)
        assert not one.events.met
        if kind != "a revoked":
            await rightful.enter(place)  # its ticket goes on counting
            await one.events.until(lambda: bool(one.events.met))
        await one.stop()

    run(body)


def test_frames_are_not_sent_to_who_shows_anothers_certificate(
    keys, node_type, caller_type, identity_of, addresses
):
    async def body() -> None:
        three = node_type(3, addresses, security=tls(keys.of(keys.nodes[3])))
        await three.start()
        of_one = tls(keys.of(keys.nodes[1]))
        place = await caller_type(identity_of(1), addresses[3], 3, of_one).ask()
        text = "node 2 is called 'n2', but the certificate of who answers names 'n3'"
        with pytest.raises(StreamRefusedError, match=text):
            await open_frames(addresses[3], place, of_one, 2, print)
        with pytest.raises(StreamRefusedError, match="node 9 is called ''"):
            await open_frames(addresses[3], place, of_one, 9, print)
        distrusts = tls(keys.of(keys.nodes[1], keys.stranger))
        with pytest.raises(OSError, match=r"local issuer|self.signed"):
            await open_frames(addresses[3], place, distrusts, 3, print)
        assert not three.events.met
        await three.stop()

    run(body)


def test_frames_are_not_sent_to_who_shows_a_revoked_certificate(
    keys, node_type, caller_type, identity_of, addresses
):
    shown: list[bytes] = []

    def refuses(pem: bytes) -> str:
        shown.append(pem)
        return "it was revoked"

    own = dataclasses.replace(keys.of(keys.nodes[1]), refuses=refuses)

    async def body() -> None:
        three = node_type(3, addresses, security=tls(keys.of(keys.nodes[3])))
        await three.start()
        caller = caller_type(identity_of(1), addresses[3], 3, tls(own))
        with pytest.raises(StreamRefusedError, match="certificate of 'n3' is refused: it was rev"):
            await caller.enter()
        assert shown == [
            ssl.DER_cert_to_PEM_cert(
                ssl.PEM_cert_to_DER_cert(keys.nodes[3].certificate.read_text())
            ).encode()
        ]
        assert not three.events.met
        await three.stop()

    run(body)


def test_a_valid_certificate_of_one_node_is_of_no_use_to_another(
    keys, node_type, caller_type, identity_of, addresses, caplog
):
    third = tls(keys.of(keys.nodes[3]))

    async def body() -> None:
        one = node_type(1, addresses, security=tls(keys.of(keys.nodes[1])))
        await one.start()
        caller = caller_type(identity_of(2), addresses[1], 1)
        code, text = await attempt(caller, third.open(addresses[1], 1))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "it speaks as node 2, which is called 'n2', but its certificate names 'n3'"
        async with third.open(addresses[1], 1) as channel:
            metadata = grpc.aio.Metadata(*identity_of(2).metadata(1))
            call = RaftBulkStub(channel).FetchSnapshot(
                SnapshotRequest(group=7, member=2), metadata=metadata
            )
            with pytest.raises(grpc.aio.AioRpcError, match="its certificate names 'n3'"):
                await call.read()
        assert not one.events.met
        assert not one.events.messages
        await one.stop()

    with caplog.at_level(logging.WARNING):
        run(body)
    text = "it speaks as node 2, which is called 'n2', but its certificate names 'n3'"
    assert caplog.text.count(text) == 2


def test_a_stranger_is_not_told_to_the_application_under_anothers_name(
    keys, node_type, caller_type, identity_of, addresses
):
    fourth = tls(keys.of(keys.sign(keys.authority, "n4")))

    async def body() -> None:
        one = node_type(1, addresses, security=tls(keys.of(keys.nodes[1])))
        await one.start()
        for name, refused in (("n5", True), ("", True), ("n4", False)):
            who = replace(identity_of(2), node=9, disk=99, formed={}, name=name)
            caller = caller_type(who, addresses[1], 1)
            _, text = await attempt(caller, fourth.open(addresses[1], 1))
            assert ("its certificate names 'n4'" in text) is refused
        assert [peer.name for peer in one.events.strangers] == ["n4"]
        await one.stop()

    run(body)


def test_a_node_does_not_talk_to_who_shows_anothers_certificate(
    keys, caller_type, identity_of, addresses
):
    class Listens(RaftTransportServicer):
        called = 0

        async def Open(self, request: Any, context: Any) -> StreamPlace:  # noqa: N802
            Listens.called += 1
            return StreamPlace()

    async def body() -> None:
        server = grpc.aio.server()
        servicer = Listens()  # type: ignore[abstract]
        add_RaftTransportServicer_to_server(servicer, server)
        tls(keys.of(keys.nodes[3])).add_port(server, addresses[2])
        await server.start()
        one = tls(keys.of(keys.nodes[1]))
        caller = caller_type(identity_of(1), addresses[2], 2)
        _, text = await attempt(caller, one.open(addresses[2], 2))
        assert "Hostname Verification Check failed" in text
        assert Listens.called == 0
        await server.stop(None)

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_certificates_change_while_nodes_run(keys, node_type, addresses):
    later = (
        keys.sign(keys.stranger, "n1", file="later-n1"),
        keys.sign(keys.stranger, "n2", file="later-n2"),
    )
    now = {node: keys.of(keys.nodes[node]) for node in (1, 2)}

    async def body() -> None:
        both = {node: addresses[node] for node in (1, 2)}
        one = node_type(1, both, security=MutualTls(lambda: now[1], NAMES.__getitem__))
        two = node_type(2, both, security=MutualTls(lambda: now[2], NAMES.__getitem__))
        await one.start()
        await two.start()
        await one.up(2)
        await two.up(1)
        # First both believe the new authority too, then they show the new certificates, and in the
        # end the old authority counts for nothing.
        for times, steps in enumerate(
            [
                [keys.of(keys.nodes[n], keys.authority, keys.stranger) for n in (1, 2)],
                [keys.of(pair, keys.authority, keys.stranger) for pair in later],
                [keys.of(pair, keys.stranger) for pair in later],
            ],
            start=2,
        ):
            now[1], now[2] = steps
            await one.transport.verify_anew()
            await one.up(2, times)
        # A node that still has the old certificate does not get in again.
        now[2] = keys.of(keys.nodes[2], keys.authority, keys.stranger)
        await one.transport.verify_anew()
        await one.events.until(lambda: one.events.peers[-1][:2] == (2, False))
        assert not one.transport.post(heartbeat(1, 2))
        await one.stop()
        await two.stop()

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_a_node_whose_certificate_is_refused_neither_comes_nor_is_called(
    keys, node_type, addresses
):
    reason = "it was revoked"
    judged = asyncio.Event()

    def refuses(pem: bytes) -> str:
        assert pem.startswith(b"-----BEGIN CERTIFICATE-----")
        judged.set()
        return reason

    own = dataclasses.replace(keys.of(keys.nodes[1]), refuses=refuses)

    async def body() -> None:
        nonlocal reason
        both = {node: addresses[node] for node in (1, 2)}
        security = tls(own)
        one = node_type(1, both, security=security)
        two = node_type(2, both, security=tls(keys.of(keys.nodes[2])))
        await one.start()
        await two.start()
        await judged.wait()
        with pytest.raises(StreamRefusedError, match=r"certificate of node 2 \('n2'\) is refused"):
            security.open(addresses[2], 2)
        reason = ""
        await one.up(2)
        await two.up(1)
        await one.stop()
        await two.stop()

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_nodes_that_refused_each_other_for_a_while_find_together_again(keys, node_type, addresses):
    reason = "the revocation list of its issuer has expired"

    async def body() -> None:
        nonlocal reason
        both = {node: addresses[node] for node in (1, 2)}
        judged = {1: asyncio.Event(), 2: asyncio.Event()}  # the other node by that one

        def judge(node: int) -> Callable[[bytes], str]:
            def refuses(_pem: bytes) -> str:
                judged[node].set()
                return reason

            return refuses

        securities = {
            node: tls(dataclasses.replace(keys.of(keys.nodes[node]), refuses=judge(node)))
            for node in both
        }
        one = node_type(1, both, security=securities[1])
        two = node_type(2, both, security=securities[2])
        await one.start()
        await two.start()
        await judged[1].wait()
        await judged[2].wait()
        for node, other in ((1, 2), (2, 1)):
            with pytest.raises(StreamRefusedError, match="is refused"):
                securities[node].open(addresses[other], other)
        reason = ""
        await one.up(2)
        await two.up(1)
        await one.stop()
        await two.stop()

    run(body)


def test_a_peer_whose_name_is_not_known_is_not_called(keys):
    with pytest.raises(StreamRefusedError, match="the name of node 9 is not known"):
        tls(keys.of(keys.nodes[1])).open("127.0.0.1:1", 9)


def test_without_certificates_nothing_is_asked():
    assert isinstance(security_of(None, str), NoSecurity)
