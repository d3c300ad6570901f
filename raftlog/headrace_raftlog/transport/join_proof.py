"""Proofs that a node knows the join secret of its cluster: a challenge and its answer.

Both ends prove it, over what both have chosen by chance and all that they say of themselves. The
secret never travels, and nothing that travels is of use a second time.

Source: RFC 2104 (HMAC); ISO/IEC 9798-4, three-pass mutual authentication.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc

from headrace_protos.raftlog.v1.join_proof_pb2 import ChallengeAnswer, ChallengeRequest
from headrace_protos.raftlog.v1.join_proof_pb2_grpc import JoinProofServicer, JoinProofStub
from headrace_raftlog.model.join_secret import JoinSecrets
from headrace_raftlog.model.limits import CHALLENGE_S_MAX, CHALLENGES_USED_MAX, STREAM_TICKET_BYTES
from headrace_raftlog.transport.identity import StreamRefusedError

if TYPE_CHECKING:
    from headrace_protos.raftlog.v1.join_proof_pb2_grpc import JoinProofAsyncStub

NONCE_KEY: Final = "headrace-proof-nonce"
PROOF_KEY: Final = "headrace-proof"

_PREFIX: Final = "headrace-"
_TICKET_KEY: Final = "headrace-ticket"
_NONCE_BYTES: Final = 16
_UNTIL_BYTES: Final = 8
_MAC_BYTES: Final = 32
_CHALLENGE_BYTES: Final = _NONCE_BYTES + _UNTIL_BYTES + _MAC_BYTES
_CALLER: Final = b"caller"
_CALLED: Final = b"called"
_TICKET: Final = b"ticket"

Metadata = tuple[tuple[str, str | bytes], ...]


class UnprovenError(StreamRefusedError):
    """The other end did not prove that it knows the join secret."""


class Proof(NamedTuple):
    """Agreement of both ends of a call."""

    secret: bytes = b""  # by which the caller has proved itself; empty for no proof at all
    nonces: bytes = b""  # of both ends

    def entry(self, ticket: bytes) -> bytes:
        """Return what opens the stream that a ticket was given for; as long as the ticket."""
        if not self.secret:
            return ticket
        pairs = ((_TICKET_KEY, ticket.hex()),)
        return _mac(self.secret, _TICKET, self.nonces, pairs)[:STREAM_TICKET_BYTES]

    def signed(self, said: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return what the called end says, with its own proof."""
        pairs = tuple(said)
        if not self.secret:
            return pairs
        return (*pairs, (PROOF_KEY, _mac(self.secret, _CALLED, self.nonces, pairs).hex()))

    def is_signed(self, heard: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return whether what the caller has heard was said by who knows the secret."""
        pairs = tuple(heard)
        if not self.secret:
            return True
        expected = _mac(self.secret, _CALLED, self.nonces, pairs).hex()
        return _equal(expected, _field(pairs, PROOF_KEY))


class JoinProof:
    """Proves this node to those that it calls, and judges those that call it.

    Challenges are not kept until they are answered, for anybody may ask for one: each carries when
    it ends, sealed by a key that this process alone has. Those that were answered rightly are
    remembered until they end.
    """

    def __init__(
        self,
        secrets_of: Callable[[], JoinSecrets | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # returns what counts now, None for a node without a secret; asked at each call
        self._secrets_of = secrets_of
        self._clock = clock  # seconds
        self._seal = secrets.token_bytes(_MAC_BYTES)
        self._used: dict[bytes, float] = {}

    def challenge(self) -> bytes:
        """Return a challenge for a caller, empty if this node has no secret."""
        if self._secrets_of() is None:
            return b""
        until = int((self._clock() + CHALLENGE_S_MAX) * 1000).to_bytes(_UNTIL_BYTES, "big")
        body = secrets.token_bytes(_NONCE_BYTES) + until
        return body + self._sealed(body)

    def check(self, metadata: Iterable[tuple[str, str | bytes]]) -> Proof:
        """Judge who calls by the metadata of its call.

        Raises UnprovenError: it does not know the secret.
        """
        known = self._secrets_of()
        if known is None:
            return Proof()
        pairs = tuple(metadata)
        shown = _field(pairs, PROOF_KEY)
        if not shown:
            if known.required:
                raise UnprovenError(
                    "it gave no proof that it knows the cluster's join secret: give it the one "
                    "that this node has (cluster.join_secret_file)"
                )
            return Proof()
        nonces = _data(_field(pairs, NONCE_KEY))
        for secret in known.accepted:
            expected = _mac(secret, _CALLER, nonces, pairs).hex()
            if _equal(expected, shown):
                self._spend(nonces)
                return Proof(secret, nonces)
        raise UnprovenError(
            "it has another join secret: cluster.join_secret_file must hold the same on all nodes"
        )

    async def prove(self, channel: grpc.aio.Channel, metadata: Metadata) -> tuple[Metadata, Proof]:
        """Return the metadata of a call with the proof, and what its answer is judged by.

        Raises:
            UnprovenError: the other end has no secret.
            grpc.aio.AioRpcError: it does not answer.
        """
        known = self._secrets_of()
        if known is None:
            return metadata, Proof()
        challenge = await _ask(channel, known.required)
        if not challenge:
            if known.required:
                raise UnprovenError(
                    "the node that was called knows no join secret: give it the one that this node "
                    "has (cluster.join_secret_file)"
                )
            return metadata, Proof()
        nonces = challenge + secrets.token_bytes(_NONCE_BYTES)
        secret = known.accepted[0]
        said = (*metadata, (NONCE_KEY, nonces.hex()))
        proof = _mac(secret, _CALLER, nonces, said).hex()
        return (*said, (PROOF_KEY, proof)), Proof(secret, nonces)

    def _spend(self, nonces: bytes) -> None:
        """Use a challenge up.

        Raises UnprovenError: it was used, is over, or not this process's.
        """
        now = self._clock()
        challenge = nonces[:_CHALLENGE_BYTES]
        body, seal = challenge[:-_MAC_BYTES], challenge[-_MAC_BYTES:]
        until = int.from_bytes(body[_NONCE_BYTES:], "big") / 1000
        for other in [each for each, end in self._used.items() if end < now]:
            del self._used[other]
        sealed = hmac.compare_digest(self._sealed(body), seal)
        if not sealed or until < now or challenge in self._used:
            raise UnprovenError("the challenge that it answers is not one that counts now")
        if len(self._used) >= CHALLENGES_USED_MAX:
            raise UnprovenError("too many nodes prove themselves at once; it may call again")
        self._used[challenge] = until

    def _sealed(self, body: bytes) -> bytes:
        return hmac.digest(self._seal, body, hashlib.sha256)


def check_signed(proof: Proof, heard: Iterable[tuple[str, str | bytes]]) -> None:
    """Refuse an answer without knowledge of the secret.

    Raises UnprovenError: its proof is missing or wrong.
    """
    if not proof.is_signed(heard):
        raise UnprovenError("the node that was called did not prove that it knows the join secret")


class ChallengeServicer(JoinProofServicer):
    """Gives challenges to anybody; each costs an HMAC and is not kept."""

    def __init__(self, proof: JoinProof) -> None:
        self._proof = proof

    async def Challenge(  # noqa: N802  (the generated base names it)
        self,
        request: ChallengeRequest,
        context: grpc.aio.ServicerContext[ChallengeRequest, ChallengeAnswer],
    ) -> ChallengeAnswer:
        """Return a challenge."""
        del request, context
        return ChallengeAnswer(challenge=self._proof.challenge())


async def _ask(channel: grpc.aio.Channel, required: bool) -> bytes:
    """Return a challenge of the other end, empty where it has none to give.

    Raises:
        grpc.aio.AioRpcError: it does not answer.
        UnprovenError: it is of a release that knows no proofs, and one is required.
    """
    stub: JoinProofAsyncStub = JoinProofStub(channel)
    try:
        return (await stub.Challenge(ChallengeRequest())).challenge[:_CHALLENGE_BYTES]
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.UNIMPLEMENTED:
            raise
        if required:
            raise UnprovenError(
                "the node that was called is of a release that knows no join secret; "
                "cluster.join_secret_required = false lets it in while nodes are upgraded"
            ) from None
        return b""


def _mac(
    secret: bytes, role: bytes, nonces: bytes, pairs: Iterable[tuple[str, str | bytes]]
) -> bytes:
    """Return the HMAC over a role, nonces and all metadata of ours but the proof itself."""
    said = sorted(
        (key, value)
        for key, value in pairs
        if key.startswith(_PREFIX) and key != PROOF_KEY and isinstance(value, str)
    )
    parts = [role, nonces]
    for key, value in said:
        parts += [key.encode(), value.encode()]
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, framed, hashlib.sha256)


def _equal(expected: str, shown: str) -> bool:
    return hmac.compare_digest(expected.encode(), shown.encode("utf-8", "replace"))


def _field(pairs: Iterable[tuple[str, str | bytes]], name: str) -> str:
    return next((value for key, value in pairs if key == name and isinstance(value, str)), "")


def _data(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
