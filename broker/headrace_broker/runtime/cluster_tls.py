"""The certificate by which this node proves to the others which one it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace_broker.config import ConfigError
from headrace_broker.config_tls import ClusterTlsSection, TlsSection
from headrace_broker.runtime.tls import load_context, stamp
from headrace_raftlog.model.tls import NodeCertificate


class ClusterTls:
    """Reads what a node shows to others and asks of them, anew when a file changes.

    Args:
        section: from the configuration; names three files.
        node: this node's name, which its certificate must bear.

    Attributes:
        certificate: for connections from now on.
        on_narrowed: called when an authority is no longer believed: what it has let in must prove
            itself anew.

    Raises:
        ConfigError: a file cannot be read, or does not hold what it should; names key and rule.
    """

    def __init__(self, section: ClusterTlsSection, node: str) -> None:
        self._section = section
        self._node = node
        self._stamp = self._look()
        self.on_narrowed: Callable[[], None] = lambda: None
        self.certificate, self._authorities = self._load()

    def changed(self) -> bool:
        """Return whether a file is another one than the one that was read last."""
        return self._look() != self._stamp

    def renew(self) -> None:
        """Read the files again.

        Raises:
            ConfigError: as at the beginning; everything stays as it was.
        """
        self._stamp = self._look()
        certificate, authorities = self._load()
        before = self._authorities
        self.certificate, self._authorities = certificate, authorities
        if not before <= authorities:
            self.on_narrowed()

    def _load(self) -> tuple[NodeCertificate, frozenset[bytes]]:
        section = self._section
        files = TlsSection(
            certificate_file=section.certificate_file,
            key_file=section.key_file,
            ca_file=section.ca_file,
            verify="peer",
        )
        load_context(files, "cluster_tls")
        octets = [
            Path(path).read_bytes()
            for path in (section.certificate_file, section.key_file, section.ca_file)
        ]
        self._check_name(octets[0])
        authorities = x509.load_pem_x509_certificates(octets[2])
        known = frozenset(each.public_bytes(Encoding.DER) for each in authorities)
        return NodeCertificate(*octets), known

    def _check_name(self, pem: bytes) -> None:
        """Refuse a certificate by which the others would not know this node."""
        certificate = x509.load_pem_x509_certificate(pem)
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names = found.value.get_values_for_type(x509.DNSName)
        except x509.ExtensionNotFound:
            names = []
        if self._node.lower() not in [name.lower() for name in names]:
            raise ConfigError(
                f"cluster_tls.certificate_file: {self._section.certificate_file}: must have this "
                f"node's name, {self._node}, among its alternative names (DNS); it has "
                f"{', '.join(names) or 'none'}"
            )

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        section = self._section
        return tuple(
            stamp(path) for path in (section.certificate_file, section.key_file, section.ca_file)
        )
