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
    """TLS settings of listeners.

    Args:
        section: from the configuration.

    Attributes:
        context: for handshakes from now on; connections keep the one they began with.

    Raises:
        ConfigError: a file cannot be read, or does not hold what it should; names key and rule.
    """

    def __init__(self, section: TlsSection) -> None:
        self._section = section
        self._stamp = self._look()
        self._grpc: GrpcTls | None = None
        self.context = load_context(section)

    def renew(self) -> None:
        """Read the files again.

        Raises:
            ConfigError: as at the beginning; everything stays as it was.
        """
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

        Raises:
            ConfigError: a file does not hold what gRPC takes.
        """
        return self._of_grpc().credentials()

    def describe_grpc(self, properties: Mapping[str, Iterable[bytes]]) -> TlsSession:
        """Return what a gRPC connection's handshake has agreed.

        Args:
            properties: `ServicerContext.auth_context()`.

        Raises:
            CertificateRefusedError: the client's certificate was revoked; its text says so.
        """
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


async def renew_forever(hang_up: asyncio.Event, *found: Renewable) -> None:
    """Renew changed files every now and then, and all at each hang-up; runs until cancelled.

    Args:
        hang_up: set to have the files read now; cleared here.
        found: what to renew.
    """
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
    """Return a context as the configuration says.

    Args:
        section: which files, and what is asked of clients.
        name: of the section in refusals.

    Raises:
        ConfigError: see `ServerTls`.
    """
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
    try:
        probe.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise _FileError(f"certificate_file: {path}: holds no PEM certificate") from None
    except OSError as error:
        raise _unreadable("certificate_file", path, error) from None


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
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise _FileError(f"ca_file: {path}: holds no PEM certificate") from None
    except OSError as error:
        raise _unreadable("ca_file", path, error) from None
    if not context.get_ca_certs(binary_form=True):
        raise _FileError(f"ca_file: {path}: holds no certificate of an authority")


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    before = context.cert_store_stats()["crl"]
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise _FileError(f"crl_file: {path}: holds no PEM revocation list") from None
    except OSError as error:
        raise _unreadable("crl_file", path, error) from None
    if context.cert_store_stats()["crl"] == before:
        raise _FileError(f"crl_file: {path}: holds no PEM revocation list")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _unreadable(key: str, path: str, error: OSError) -> _FileError:
    return _FileError(f"{key}: {path}: cannot be read: {error.strerror}")


def stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when a file is replaced; all 0 for one that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
