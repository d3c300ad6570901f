"""Proofs of nodes to each other: by certificates, by a join secret, or none.

With certificates both ends verify each other (mutual TLS), and a node may speak only as the one
that its certificate names: a valid certificate of one node is of no use to another.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

import grpc

from headrace_raftlog.model.join_secret import JoinSecrets
from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.transport.channel_options import CLIENT_OPTIONS
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.join_proof import JoinProof

_CERTIFICATE: Final = "x509_pem_cert"  # that gRPC has verified; what it says of names ends at a NUL

Context = grpc.aio.ServicerContext[Any, Any]


class Security(Protocol):
    """Listener, connector and judge of callers."""

    proof: JoinProof  # of the join secret, asked for beside certificates

    def add_port(self, server: grpc.aio.Server, address: str) -> None:
        """Add a server's listener; raises RuntimeError where that cannot be."""

    def open(self, address: str, peer: int) -> grpc.aio.Channel:
        """Return a channel to a peer; calls fail where the other end is not that node.

        Raises StreamRefusedError: it cannot be told who the peer should be.
        """

    def check(self, context: Context, peer: StreamIdentity) -> None:
        """Refuse a caller that is not the node that it claims to be.

        Raises StreamRefusedError: its text says whom the certificate names.
        """

    def incoming(self) -> ssl.SSLContext | None:
        """Return what judges who connects to send frames, None where nothing is encrypted."""

    def outgoing(self) -> ssl.SSLContext | None:
        """Return what asks for the certificate of the other end of such a connection."""

    def check_called(self, peer: int, tls: ssl.SSLObject | None) -> None:
        """Refuse to send frames to whom a handshake has shown not to be a peer.

        Raises StreamRefusedError: its text says whom the certificate names.
        """

    def check_caller(self, peer: StreamIdentity, shown: bytes) -> None:
        """Refuse frames of a node that was not given the ticket.

        Args:
            peer: whom it was given to.
            shown: certificate (PEM) of the caller, empty where nothing is encrypted.

        Raises StreamRefusedError: its text says whom the certificate names.
        """


class NoSecurity:
    """Everything in the clear; who knows the join secret, if there is one, is believed."""

    def __init__(self, proof: JoinProof | None = None) -> None:
        self.proof = proof or JoinProof()

    def add_port(self, server: grpc.aio.Server, address: str) -> None:
        """See `Security`."""
        server.add_insecure_port(address)

    def open(self, address: str, peer: int) -> grpc.aio.Channel:
        """See `Security`."""
        del peer
        return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)

    def check(self, context: Context, peer: StreamIdentity) -> None:
        """See `Security`."""

    def incoming(self) -> ssl.SSLContext | None:
        """See `Security`."""
        return None

    def outgoing(self) -> ssl.SSLContext | None:
        """See `Security`."""
        return None

    def check_called(self, peer: int, tls: ssl.SSLObject | None) -> None:
        """See `Security`."""

    def check_caller(self, peer: StreamIdentity, shown: bytes) -> None:
        """See `Security`."""


class MutualTls:
    """Both ends show certificates that the cluster's authorities have signed."""

    def __init__(
        self,
        certificate: Callable[[], NodeCertificate],
        name_of: Callable[[int], str],
        proof: JoinProof | None = None,
    ) -> None:
        self.proof = proof or JoinProof()  # of the join secret, asked for as well
        # returns what this node shows and believes now; called for each handshake, also in threads
        # of gRPC
        self._certificate = certificate
        self._name_of = name_of  # returns the name of a node, "" for one that is not known
        self._made: tuple[NodeCertificate, tuple[ssl.SSLContext, ssl.SSLContext]] | None = None
        self._refused: dict[int, bytes] = {}  # what nodes have shown and was not believed

    def add_port(self, server: grpc.aio.Server, address: str) -> None:
        """See `Security`."""
        shown = self._certificate()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            found = self._certificate()
            if found is shown:
                return None  # as before
            shown = found
            return _configuration(found)

        credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(shown),
            renewed,  # type: ignore[arg-type]  # the stubs do not know that it may answer None
            require_client_authentication=True,
        )
        server.add_secure_port(address, credentials)

    def open(self, address: str, peer: int) -> grpc.aio.Channel:
        """See `Security`; the other end's certificate must bear the peer's name.

        gRPC does not show it to who connects. So a peer is not called whose certificate was seen,
        when it called or was sent frames, and is refused. That is judged anew each time: what was
        wrong may have been the list alone, at both ends, and then neither would ever call again.
        """
        name = self._name_of(peer)
        if not name:
            raise StreamRefusedError(f"the name of node {peer} is not known, nor its certificate")
        own = self._certificate()
        shown = self._refused.get(peer)
        if shown is not None and own.refuses is not None and own.refuses(shown):
            raise StreamRefusedError(f"the certificate of node {peer} ({name!r}) is refused")
        self._refused.pop(peer, None)
        credentials = grpc.ssl_channel_credentials(own.authorities, own.key, own.certificate)
        options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", _subject(name))]
        return grpc.aio.secure_channel(address, credentials, options=options)

    def check(self, context: Context, peer: StreamIdentity) -> None:
        """See `Security`; one that is not known here must bear the name that it says to have."""
        name = self._name_of(peer.node) or peer.name
        says = f"it speaks as node {peer.node}, which is called {name!r}, but its certificate"
        self._judge(peer.node, name, caller_certificate(context), says)

    def incoming(self) -> ssl.SSLContext | None:
        """See `Security`."""
        return self._contexts()[0]

    def outgoing(self) -> ssl.SSLContext | None:
        """See `Security`."""
        return self._contexts()[1]

    def check_called(self, peer: int, tls: ssl.SSLObject | None) -> None:
        """See `Security`; the rule for names is that of calls."""
        assert tls is not None, "nothing is sent in the clear"
        name = self._name_of(peer)
        says = f"node {peer} is called {name!r}, but the certificate of who answers"
        self._judge(peer, name, shown_certificate(tls), says)

    def check_caller(self, peer: StreamIdentity, shown: bytes) -> None:
        """See `Security`; the rules are those of calls."""
        assert shown, "nothing is taken in the clear"
        name = self._name_of(peer.node) or peer.name
        says = f"it has a ticket of node {peer.node}, which is called {name!r}, but its certificate"
        self._judge(peer.node, name, shown, says)

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return contexts for callers and for listeners; making one takes the loop 2 ms."""
        own = self._certificate()
        if self._made is None or self._made[0] is not own:
            self._made = (
                own,
                (_context(own, ssl.PROTOCOL_TLS_SERVER), _context(own, ssl.PROTOCOL_TLS_CLIENT)),
            )
        return self._made[1]

    def _judge(self, node: int, name: str, shown: bytes, says: str) -> None:
        """Refuse a certificate (PEM) that is not for a node of this name, or was revoked.

        What was revoked is noted.

        Raises StreamRefusedError: its text begins with `says` where the name is another.
        """
        from headrace_raftlog.node_certificate import node_names  # a library of its own

        try:
            found = node_names(shown)
        except ValueError as error:
            raise StreamRefusedError(f"{says} is none of a node: {error}") from None
        subject = _subject(name).lower()
        if not subject or subject not in [each.lower() for each in found]:
            names = ", ".join(map(repr, found)) or "nobody"
            raise StreamRefusedError(f"{says} names {names}")
        refuses = self._certificate().refuses
        reason = refuses(shown) if refuses is not None else ""
        if reason:
            self._refused[node] = shown
            raise StreamRefusedError(f"the certificate of {name!r} is refused: {reason}")
        self._refused.pop(node, None)


def _subject(name: str) -> str:
    """Return the name that a certificate has to bear: of a further process, `n1:1`, its node's."""
    return name.partition(":")[0]


def security_of(
    certificate: Callable[[], NodeCertificate] | None,
    name_of: Callable[[int], str],
    join_secrets: Callable[[], JoinSecrets | None] = lambda: None,
) -> Security:
    """Return the security with certificates or without, and with a join secret or without."""
    proof = JoinProof(join_secrets)
    return NoSecurity(proof) if certificate is None else MutualTls(certificate, name_of, proof)


def shown_certificate(tls: ssl.SSLObject | None) -> bytes:
    """Return the certificate (PEM) of the other end of a handshake, empty without a handshake."""
    if tls is None:
        return b""
    return ssl.DER_cert_to_PEM_cert(tls.getpeercert(True) or b"").encode("ascii")


def caller_certificate(context: Context) -> bytes:
    """Return the certificate (PEM) of the caller of a gRPC call, empty for none."""
    properties: Any = context.auth_context()
    found: list[bytes] = list(properties.get(_CERTIFICATE, ()))
    return found[0] if found else b""


def _context(own: NodeCertificate, role: int) -> ssl.SSLContext:
    """Return what shows a certificate and asks for one that the same authorities have signed."""
    context = ssl.SSLContext(role)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
    context.check_hostname = False  # names are judged by `check_called`
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=own.authorities.decode("ascii", "ignore"))  # in comments
    # OpenSSL reads files only; this one is in memory, and gone when it is closed.
    with os.fdopen(os.memfd_create("certificate"), "wb") as file:
        file.write(own.certificate + b"\n" + own.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def _configuration(own: NodeCertificate) -> grpc.ServerCertificateConfiguration:
    pair = (own.key, own.certificate)
    return grpc.ssl_server_certificate_configuration([pair], own.authorities)
