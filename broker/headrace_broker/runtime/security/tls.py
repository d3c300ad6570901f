"""The server's side of TLS: certificate, key and authorities, read anew when their files change.

One object serves all listeners of a node: those of asyncio by `context`, those of gRPC by
`grpc_credentials`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from headrace_broker.config.configuration import ConfigError
from headrace_broker.config.tls import TlsSection
from headrace_broker.model.tls import TlsSession
from headrace_broker.runtime.security.certificate import describe

if TYPE_CHECKING:
    import grpc

    from headrace_broker.runtime.security.grpc_tls import GrpcTls

LOOK_SECONDS: Final = 10.0  # between looks whether a file has changed
_OF_CERTIFICATE: Final = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})

log = logging.getLogger("headrace.security")


class ServerTls:
    """TLS context of listeners; ConfigError, naming key and rule, for a wrong file."""

    def __init__(self, section: TlsSection) -> None:
        self._section = section
        self._stamp = self._look()
        self._grpc: GrpcTls | None = None
        self.context = load_context(section)  # of handshakes; connections keep theirs

    def renew(self) -> None:
        """Read the files again; ConfigError as at the beginning: everything stays as it was."""
        self._stamp = self._look()
        context = load_context(self._section)
        if self._grpc is not None:
            self._grpc.renew()
        self.context = context

    def describe(self, transport: asyncio.BaseTransport) -> TlsSession:
        """Return what a transport's handshake has agreed."""
        return describe(transport.get_extra_info("ssl_object"), self._section.login_from)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return what a gRPC server shows and asks for; handshakes follow renewals by themselves.

        gRPC asks clients for a certificate only where it requires one (`fail_if_no_peer_cert`).

        Raises ConfigError: a file does not hold what gRPC takes.
        """
        return self._of_grpc().credentials()

    def describe_grpc(self, properties: Mapping[str, Iterable[bytes]]) -> TlsSession:
        """Return what a gRPC handshake has agreed; CertificateRefusedError if revoked."""
        return self._of_grpc().describe(properties)

    def _of_grpc(self) -> GrpcTls:
        if self._grpc is None:
            from headrace_broker.runtime.security.grpc_tls import (
                GrpcTls,  # brings a library of its own
            )

            self._grpc = GrpcTls(self._section)
        return self._grpc

    def changed(self) -> bool:
        """Return whether a file is another one than the one that was read last."""
        return self._look() != self._stamp

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        section = self._section
        files = (section.certificate_file, section.key_file, section.ca_file, section.crl_file)
        return tuple(stamp(path) for path in files)


class Renewable(Protocol):
    """A reader of files that may change: `ServerTls`, `ClusterTls`, `JoinSecretFile`."""

    def changed(self) -> bool:
        """Return whether a file has changed since it was read."""

    def renew(self) -> None:
        """Read the files again; raises ConfigError and leaves everything as it was."""


async def renew_forever(hang_up: asyncio.Event, *files: Renewable | None) -> None:
    """Renew what has changed now and then, and all at each hang-up (cleared here), for ever."""
    found = [each for each in files if each is not None]
    while True:
        asked = True
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await hang_up.wait()
        except TimeoutError:
            asked = False
        hang_up.clear()
        for each in found:
            if asked or each.changed():
                _renew(each)


def _renew(found: Renewable) -> None:
    try:
        found.renew()
    except ConfigError as error:
        log.error(
            "reload of certificates and secrets failed, the former ones stay in use: %s", error
        )
    else:
        log.info("certificates and secrets reloaded; new connections use them")


def load_context(section: TlsSection, name: str = "tls") -> ssl.SSLContext:
    """Return a context as the configuration says; ConfigError as `ServerTls`."""
    try:
        return _load(section)
    except _FileError as error:
        raise ConfigError(f"{name}.{error}") from None


class _FileError(Exception):
    """A file is not right; the text names key and rule."""


def _load(section: TlsSection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_certificate(section.certificate_file)
    _load_key(context, section)
    if section.ca_file:
        _load_authorities(context, section.ca_file)
    if section.crl_file:
        _load_revoked(context, section.crl_file)
    if section.verify == "peer":
        required = section.fail_if_no_peer_cert
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _check_certificate(path: str) -> None:
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_file(probe, "certificate_file", path, "certificate")


def _load_key(context: ssl.SSLContext, section: TlsSection) -> None:
    path = section.key_file
    try:
        os.close(os.open(path, os.O_RDONLY))
        # Without a password of ours OpenSSL would ask for one on the terminal.
        context.load_cert_chain(section.certificate_file, path, lambda: section.key_password)
    except ssl.SSLError as error:
        if error.reason in _OF_CERTIFICATE:
            text = f"certificate_file: {section.certificate_file}: {error.reason}"
        elif error.reason == "KEY_VALUES_MISMATCH":
            text = f"key_file: {path}: must be the key of certificate_file, and is not"
        else:
            text = f"key_file: {path}: holds no PEM key that key_password opens"
        raise _FileError(text) from None
    except OSError as error:
        raise _unreadable("key_file", path, error) from None


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _load_file(context, "ca_file", path, "certificate")
    if not context.get_ca_certs(binary_form=True):
        raise _FileError(f"ca_file: {path}: holds no certificate of an authority")


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    before = context.cert_store_stats()["crl"]
    _load_file(context, "crl_file", path, "revocation list")
    if context.cert_store_stats()["crl"] == before:
        raise _FileError(f"crl_file: {path}: holds no PEM revocation list")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_file(context: ssl.SSLContext, key: str, path: str, kind: str) -> None:
    """Load what is in the file of a key; _FileError without any of the kind."""
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise _FileError(f"{key}: {path}: holds no PEM {kind}") from None
    except OSError as error:
        raise _unreadable(key, path, error) from None


def _unreadable(key: str, path: str, error: OSError) -> _FileError:
    return _FileError(f"{key}: {path}: cannot be read: {error.strerror}")


def stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when a file is replaced; all 0 for one that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
