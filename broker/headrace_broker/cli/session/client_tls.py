"""TLS of commands: certificates of nodes, and their own."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

if TYPE_CHECKING:
    import grpc  # commands that do not speak it start without it

TLS_VARIABLE: Final = "HEADRACE_API_TLS"
CA_VARIABLE: Final = "HEADRACE_API_CA_FILE"
CERT_VARIABLE: Final = "HEADRACE_API_CERT_FILE"
KEY_VARIABLE: Final = "HEADRACE_API_KEY_FILE"
_ON: Final = ("1", "true", "yes")


class ClientTls(msgspec.Struct, frozen=True):
    """Files in PEM, for all protocols that commands speak.

    Attributes:
        ca_file: authorities that nodes' certificates are held against, "" for those of the system.
        cert_file: certificate of who asks, with what it was signed by; "" for none.
        key_file: its key, "" where that stands in `cert_file`.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """Return what checks nodes, for AMQP and HTTP.

        Raises:
            click.UsageError: a file cannot be read, or is something else.
        """
        if self.key_file and not self.cert_file:
            raise click.UsageError("--key-file: needs a --cert-file")
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except OSError as error:  # what ssl cannot use is one, too
            named = ", ".join(
                each for each in (self.ca_file, self.cert_file, self.key_file) if each
            )
            raise click.UsageError(f"files for TLS ({named}): {error}") from None
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the same for gRPC; raises as `context`."""
        import grpc

        self.context()  # which says what is wrong with a file; gRPC would fail to connect for ever
        certificate = _read(self.cert_file)
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file),
            private_key=_read(self.key_file or self.cert_file),
            certificate_chain=certificate,
        )


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def tls_of(environment: Mapping[str, str]) -> tuple[bool, ClientTls]:
    """Return whether the environment asks for TLS, and the files that it names.

    Raises:
        click.UsageError: HEADRACE_API_TLS is neither on nor off.
    """
    files = ClientTls(
        *(environment.get(each, "") for each in (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE))
    )
    asked = environment.get(TLS_VARIABLE, "").lower()
    if asked not in ("", "0", "false", "no", *_ON):
        raise click.UsageError(f"{TLS_VARIABLE}: '{asked}' must be 1 or 0")
    return asked in _ON or (asked == "" and files != ClientTls()), files
