"""The certificate by which this node proves to the others which one it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import ClusterTlsSection, TlsSection
from headrace_broker.runtime.security.certificate import CertificateRefusedError
from headrace_broker.runtime.security.peer_certificate import REVOKED, RevocationLists
from headrace_broker.runtime.security.tls import load_context, stamp
from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.node_certificate import node_names


class ClusterTls:
    """Reads what a node shows to others and asks of them, anew when a file changes.

    Raises ConfigError: a file is not as it should be; names key and rule.
    """

    def __init__(self, section: ClusterTlsSection, node: str) -> None:
        self._section = section  # from the configuration; names three files, or four
        self._node = node  # this node's name, which its certificate must bear
        self._stamp = self._look()
        # called when an authority is no longer believed, another list of revoked certificates
        # counts, or somebody has shown one that was revoked: all must prove themselves anew
        self.on_narrowed: Callable[[], None] = lambda: None
        self._refused: set[int] = set()  # serial numbers that were shown, of this list
        self.certificate, self._authorities, self._revoked = self._load()

    def changed(self) -> bool:
        """Return whether a file is another one than the one that was read last."""
        return self._look() != self._stamp

    def renew(self) -> None:
        """Read the files again; ConfigError as at the beginning: everything stays as it was."""
        self._stamp = self._look()
        certificate, authorities, revoked = self._load()
        narrowed = not self._authorities <= authorities or revoked != self._revoked
        self.certificate, self._authorities, self._revoked = certificate, authorities, revoked
        if narrowed:
            self._refused.clear()
            self.on_narrowed()

    def _load(self) -> tuple[NodeCertificate, frozenset[bytes], bytes]:
        section = self._section
        files = TlsSection(
            certificate_file=section.certificate_file,
            key_file=section.key_file,
            ca_file=section.ca_file,
            verify="peer",
        )
        load_context(files, "cluster_tls")
        byte_counts = [
            Path(path).read_bytes()
            for path in (section.certificate_file, section.key_file, section.ca_file)
        ]
        self._check_name(byte_counts[0])
        authorities = x509.load_pem_x509_certificates(byte_counts[2])
        known = frozenset(each.public_bytes(Encoding.DER) for each in authorities)
        revoked, lists = self._load_lists()
        if lists is None:
            return NodeCertificate(byte_counts[0], byte_counts[1], byte_counts[2]), known, revoked
        refuses = functools.partial(self._refusal, lists)
        return (
            NodeCertificate(byte_counts[0], byte_counts[1], byte_counts[2], refuses),
            known,
            revoked,
        )

    def _load_lists(self) -> tuple[bytes, RevocationLists | None]:
        path = self._section.crl_file
        if not path:
            return b"", None
        try:
            data = Path(path).read_bytes()
            return data, RevocationLists(data)
        except OSError as error:
            text = f"{path}: cannot be read: {error.strerror}"
            raise ConfigError(f"cluster_tls.crl_file: {text}") from None
        except ValueError as error:
            raise ConfigError(f"cluster_tls.crl_file: {path}: {error}") from None

    def _refusal(self, lists: RevocationLists, pem: bytes) -> str:
        """Return why a node's certificate is not believed, "" when it is.

        Who shows a revoked one for the first time may have let this node in before it called: all
        streams are opened anew. A list whose time is over refuses who comes, and ends nothing.
        """
        certificate = x509.load_pem_x509_certificate(pem)
        try:
            lists.check(certificate)
        except CertificateRefusedError as error:
            if str(error) == REVOKED and certificate.serial_number not in self._refused:
                self._refused.add(certificate.serial_number)
                self.on_narrowed()
            return str(error)
        return ""

    def _check_name(self, pem: bytes) -> None:
        """Refuse a certificate by which the others would not know this node."""
        key = f"cluster_tls.certificate_file: {self._section.certificate_file}"
        try:
            names = node_names(pem)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from None
        if self._node.lower() not in [name.lower() for name in names]:
            raise ConfigError(
                f"{key}: must have this "
                f"node's name, {self._node}, among its alternative names (DNS); it has "
                f"{', '.join(names) or 'none'}"
            )

    def shared_authority(self, clients: TlsSection) -> str:
        """Return what to do about an authority that signs for clients too, "" for none."""
        if clients.verify != "peer":
            return ""
        signing = x509.load_pem_x509_certificates(Path(clients.ca_file).read_bytes())
        shared = [each for each in signing if each.public_bytes(Encoding.DER) in self._authorities]
        if not shared:
            return ""
        return (
            "tls.ca_file and cluster_tls.ca_file have an authority in common "
            f"({shared[0].subject.rfc4514_string()!r}): a client whom it gives a certificate with "
            "the name of a node is taken for that node. Sign the certificates of nodes by an "
            "authority of their own, and name it alone in cluster_tls.ca_file"
        )

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        section = self._section
        files = (section.certificate_file, section.key_file, section.ca_file, section.crl_file)
        return tuple(stamp(path) for path in files if path)
