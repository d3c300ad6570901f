"""TLS as gRPC takes it: bytes of files instead of contexts, and a question for each handshake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import grpc
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import TlsSection
from headrace_broker.model.limits import PEER_CERTIFICATES_REMEMBERED_MAX
from headrace_broker.model.tls import TlsSession
from headrace_broker.runtime.security.certificate import NONE, set_client
from headrace_broker.runtime.security.peer_certificate import PeerCertificate, RevocationLists

_VERSION: Final = "ssl_tls_version"
_CIPHER: Final = "ssl_cipher"
_CERTIFICATE: Final = "x509_pem_cert"

_Properties = Mapping[str, Iterable[bytes]]


class GrpcTls:
    """TLS credentials of gRPC servers; ConfigError, naming key and rule, for a wrong file."""

    def __init__(self, section: TlsSection) -> None:
        # from the configuration; its files were found right by `tls.load_context`
        self._section = section
        self._known: dict[bytes, PeerCertificate] = {}
        self._lists: RevocationLists | None = None
        self._version = 0
        self._configuration: grpc.ServerCertificateConfiguration
        self.renew()

    def renew(self) -> None:
        """Read the files again; ConfigError as at the beginning: everything stays as it was."""
        section = self._section
        lists = None
        if section.crl_file:
            try:
                lists = RevocationLists(Path(section.crl_file).read_bytes())
            except (OSError, ValueError) as error:
                raise ConfigError(f"tls.crl_file: {section.crl_file}: {error}") from None
        try:
            pair = (_key(section), Path(section.certificate_file).read_bytes())
            roots = Path(section.ca_file).read_bytes() if section.ca_file else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"tls.key_file: {section.key_file}: {error}") from None
        self._configuration = grpc.ssl_server_certificate_configuration([pair], roots)
        self._lists = lists
        self._version += 1

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials whose handshakes use the files that were read last."""
        given = self._version

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # Called in threads of gRPC; None is "as before".
            nonlocal given
            if given == self._version:
                return None
            given = self._version
            return self._configuration

        section = self._section
        required = section.verify == "peer" and section.fail_if_no_peer_cert
        # The stubs do not know that the fetcher may answer None.
        return grpc.dynamic_ssl_server_credentials(self._configuration, fetch, required)  # type: ignore[arg-type]

    def describe(self, properties: _Properties) -> TlsSession:
        """Return what a handshake has agreed; CertificateRefusedError for a revoked one."""
        login_from = self._section.login_from
        session = TlsSession(_first(properties, _VERSION), _first(properties, _CIPHER))
        session.external = login_from != NONE
        pem = _first(properties, _CERTIFICATE).encode()
        if pem:
            certificate = self._certificate(pem)
            if self._lists is not None:
                certificate.check(self._lists)
            set_client(
                session, certificate.subject, certificate.issuer, certificate.not_after, login_from
            )
        return session

    def _certificate(self, pem: bytes) -> PeerCertificate:
        found = self._known.get(pem)
        if found is None:
            found = PeerCertificate(pem)
            if len(self._known) >= PEER_CERTIFICATES_REMEMBERED_MAX:
                self._known = {}
            self._known[pem] = found
        return found


def _key(section: TlsSection) -> bytes:
    data = Path(section.key_file).read_bytes()
    if not section.key_password or b"ENCRYPTED" not in data:
        return data
    key = load_pem_private_key(data, section.key_password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _first(properties: _Properties, name: str) -> str:
    return next(iter(properties.get(name, ())), b"").decode()
