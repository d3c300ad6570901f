"""Nodes that prove to know the join secret: nothing passes without, whichever call is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from headrace_protos.raftlog.v1.join_proof_pb2 import ChallengeAnswer
from headrace_protos.raftlog.v1.join_proof_pb2_grpc import (
    JoinProofServicer,
    add_JoinProofServicer_to_server,
)
from headrace_protos.raftlog.v1.transport_pb2 import OpenRequest, SnapshotRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import (
    RaftBulkStub,
    RaftTransportServicer,
    RaftTransportStub,
    add_RaftTransportServicer_to_server,
)
from headrace_raftlog.model.join_secret import JoinSecrets
from headrace_raftlog.model.limits import CHALLENGE_S_MAX, STREAM_TICKET_BYTES
from headrace_raftlog.transport.identity import REMOVED_KEY, StreamIdentity
from headrace_raftlog.transport.join_proof import (
    NONCE_KEY,
    PROOF_KEY,
    JoinProof,
    Proof,
    UnprovenError,
)
from headrace_raftlog.transport.security import NoSecurity

OLD = b"the secret that was there before"
NEW = b"the secret that comes after it !"


def knowing(*secrets: bytes, required: bool = True) -> NoSecurity:
    return NoSecurity(JoinProof(lambda: JoinSecrets(secrets, required)))


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(main())


async def said_by(proof: JoinProof, called: JoinProof, identity: StreamIdentity) -> Any:
    """Return the metadata of a call, and what its answer is judged by."""
    server = grpc.aio.server()

    class Servicer(JoinProofServicer):
        async def Challenge(self, request: Any, context: Any) -> ChallengeAnswer:  # noqa: N802
            return ChallengeAnswer(challenge=called.challenge())

    add_JoinProofServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        found = await proof.prove(channel, identity.metadata(1))
    await server.stop(None)
    return found


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.usefixtures("over_grpc")
def test_a_stranger_who_knows_all_but_the_secret_gets_nowhere(
    node_type, caller_type, identity_of, addresses
):
    """Open, the frames, both kinds of fetches: each asks for the proof."""

    async def body() -> None:
        one = node_type(1, addresses, security=knowing(NEW))
        await one.start()
        for stranger in (NoSecurity(), knowing(OLD), knowing(OLD, required=False)):
            link = caller_type(identity_of(2), addresses[1], 1, stranger)
            async with stranger.open(addresses[1], 1) as channel:
                said, _ = await stranger.proof.prove(channel, identity_of(2).metadata(1))
                metadata = grpc.aio.Metadata(*said)
                with pytest.raises(grpc.aio.AioRpcError, match="join secret") as refused:
                    await RaftTransportStub(channel).Open(OpenRequest(), metadata=metadata)
                assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
                assert not tuple(refused.value.initial_metadata() or ())
                call = RaftBulkStub(channel).FetchSnapshot(
                    SnapshotRequest(group=0, member=2), metadata=metadata
                )
                with pytest.raises(grpc.aio.AioRpcError, match="join secret"):
                    await call.read()
            await link.refused(
                StreamPlace(
                    port=one.transport._servicer.listener.port, ticket=bytes(STREAM_TICKET_BYTES)
                )
            )
        assert not one.events.met
        assert not one.events.strangers
        await one.stop()

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_nodes_that_know_the_secret_talk_and_fetch(node_type, addresses):
    async def body() -> None:
        nodes = [node_type(n, addresses, security=knowing(NEW)) for n in (1, 2)]
        for each in nodes:
            await each.start()
        await nodes[0].up(2)
        await nodes[1].up(1)
        fetch = nodes[0].transport.bulk.snapshot(2, 7, 1, 1)
        with pytest.raises(Exception, match="has no snapshot"):
            await fetch
        for each in nodes:
            await each.stop()

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_a_secret_is_replaced_while_nodes_talk(node_type, addresses):
    held = {1: [OLD], 2: [OLD]}

    def security(node: int) -> NoSecurity:
        return NoSecurity(JoinProof(lambda: JoinSecrets(tuple(held[node]))))

    async def body() -> None:
        nodes = [node_type(n, addresses, security=security(n)) for n in (1, 2)]
        for each in nodes:
            await each.start()
        steps = ((1, [OLD, NEW]), (2, [NEW, OLD]), (1, [NEW]), (2, [NEW]))
        for times, (node, secrets) in enumerate(steps, 1):
            held[node] = secrets
            await nodes[0].up(2, times)
            await nodes[1].up(1, times)
            await nodes[0].transport.verify_anew()
        for each in nodes:
            await each.stop()

    run(body)


@pytest.mark.usefixtures("over_grpc")
def test_nodes_are_given_a_secret_one_after_the_other(node_type, addresses):
    async def body() -> None:
        one = node_type(1, addresses, security=knowing(NEW, required=False))
        two = node_type(2, addresses)
        for each in (one, two):
            await each.start()
        await one.up(2)
        await two.up(1)
        for each in (one, two):
            await each.stop()

    run(body)


@pytest.mark.parametrize("required", [True, False])
def test_a_node_of_an_earlier_release_is_let_in_while_the_proof_is_not_required(
    identity_of, required
):
    class Earlier(RaftTransportServicer):
        async def Open(self, request: Any, context: Any) -> StreamPlace:  # noqa: N802
            raise AssertionError("only the challenge is asked for")

    async def body() -> None:
        server = grpc.aio.server()
        add_RaftTransportServicer_to_server(Earlier(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        proof = JoinProof(lambda: JoinSecrets((NEW,), required))
        own = identity_of(2).metadata(1)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            if required:
                with pytest.raises(UnprovenError, match=r"cluster\.join_secret_required = false"):
                    await proof.prove(channel, own)
            else:
                assert await proof.prove(channel, own) == (own, Proof())
        await server.stop(None)
        called = JoinProof(lambda: JoinSecrets((NEW,), required))
        if required:
            with pytest.raises(UnprovenError, match="it gave no proof"):
                called.check(own)
        else:
            assert called.check(own) == Proof()

    run(body)


def test_who_is_called_proves_itself_too(node_type, caller_type, identity_of, addresses):
    """An impostor at a node's address has challenges of its own, and takes any proof."""

    class Impostor(RaftTransportServicer, JoinProofServicer):
        def __init__(self) -> None:
            self.calls = 0

        async def Challenge(self, request: Any, context: Any) -> ChallengeAnswer:  # noqa: N802
            return ChallengeAnswer(challenge=bytes(56))

        async def Open(self, request: Any, context: Any) -> StreamPlace:  # noqa: N802
            self.calls += 1
            if self.calls > 1:
                removed = ((REMOVED_KEY, str(identity_of(1).disk)),)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "removed", removed)
            await context.send_initial_metadata(identity_of(2).metadata(1))
            return StreamPlace(port=1, ticket=bytes(16))

    async def body() -> None:
        server = grpc.aio.server()
        impostor = Impostor()  # type: ignore[abstract]
        add_RaftTransportServicer_to_server(impostor, server)
        add_JoinProofServicer_to_server(impostor, server)
        server.add_insecure_port(addresses[2])
        await server.start()
        one = node_type(1, addresses, security=knowing(NEW))
        await one.start()
        link = one.transport.sessions[2].link
        seen: set[str] = set()

        def refusal(text: str) -> bool:
            seen.add(link.refusal)
            return any(text in each for each in seen)

        async with asyncio.timeout(30):
            while not (refusal("did not prove") and refusal("removed")):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert one.events.removals == 0  # who cannot prove itself cannot expel a node
        assert not one.events.met
        await one.stop()
        await server.stop(None)

    run(body)


def test_nothing_that_was_sent_is_of_use_again_or_to_say_something_else(identity_of):
    clock = Clock()

    async def body() -> None:
        called = JoinProof(lambda: JoinSecrets((NEW,)), clock)
        caller = JoinProof(lambda: JoinSecrets((NEW,)))
        said, proof = await said_by(caller, called, identity_of(2))
        assert not [value for _, value in said if NEW.decode() in value or NEW.hex() in value]
        assert called.check(said) == proof
        with pytest.raises(UnprovenError, match="not one that counts now"):
            called.check(said)
        said, _ = await said_by(caller, called, identity_of(2))
        other = dict(said) | dict(identity_of(3).metadata(1))
        with pytest.raises(UnprovenError, match="another join secret"):
            called.check(tuple(other.items()))
        with pytest.raises(UnprovenError, match="not one that counts now"):
            JoinProof(lambda: JoinSecrets((NEW,)), clock).check(said)  # another process
        clock.now += CHALLENGE_S_MAX + 1
        with pytest.raises(UnprovenError, match="not one that counts now"):
            called.check(said)

    run(body)


def test_a_proof_of_one_end_is_none_of_the_other_and_no_ticket(identity_of):
    async def body() -> None:
        called = JoinProof(lambda: JoinSecrets((NEW,)))
        said, proof = await said_by(called, called, identity_of(2))
        answer = proof.signed(identity_of(1).metadata(2))
        assert proof.is_signed(answer)
        assert not proof.is_signed(said)
        assert not proof.is_signed(identity_of(1).metadata(2))
        assert not proof.is_signed(proof._replace(nonces=b"x").signed(identity_of(1).metadata(2)))
        changed = [(k, "9" if k == "headrace-node" else v) for k, v in answer]
        assert not proof.is_signed(changed)
        ticket = bytes(range(STREAM_TICKET_BYTES))
        assert len(proof.entry(ticket)) == STREAM_TICKET_BYTES
        assert proof.entry(ticket) != ticket
        assert Proof().entry(ticket) == ticket

    run(body)


@pytest.mark.parametrize("nonces", ["", "zz", "00" * 16, "00" * 200])
@pytest.mark.parametrize("shown", ["00", "\x7f", "ff" * 32])
def test_nonsense_is_refused_by_name(nonces, shown):
    proof = JoinProof(lambda: JoinSecrets((NEW,)))
    with pytest.raises(UnprovenError):
        proof.check(((NONCE_KEY, nonces), (PROOF_KEY, shown)))
