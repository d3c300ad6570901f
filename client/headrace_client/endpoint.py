"""Addresses of nodes, and how connections to them are secured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from headrace_client.limits import (
    CONNECT_MS,
    ENDPOINTS_MAX,
    KEEPALIVE_MS,
    KEEPALIVE_TIMEOUT_MS,
    RECEIVE_BYTES_MAX,
)

DEFAULT_PORT: Final = 7672
PORT_MAX: Final = 65_535


class Tls(NamedTuple):
    """Certificates of the nodes and of this client."""

    # PEM of the authorities that nodes' certificates are checked against; None for those that gRPC
    # knows
    ca_file: str | os.PathLike[str] | None = None
    # PEM of this client's certificate and what it was signed with, None for none
    cert_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None  # PEM of its key
    # that nodes' certificates must have instead of the endpoint's; None for that
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            OSError: one cannot be read.
            ValueError: there is a certificate without key, or the other way round.
        """
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file must be given together")
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file),
            private_key=_read(self.key_file),
            certificate_chain=_read(self.cert_file),
        )


def _read(path: str | os.PathLike[str] | None) -> bytes | None:
    return Path(path).read_bytes() if path is not None else None


def parse_endpoints(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return addresses as HOST:PORT, each once, in the order given.

    Args:
        given: one or several of HOST, HOST:PORT, [IPV6]:PORT; a string may have several between
            commas.

    Raises:
        ValueError: there is none, too many, or one is not an address.
    """
    texts = given.split(",") if isinstance(given, str) else list(given)
    found = tuple(dict.fromkeys(_endpoint(text.strip()) for text in texts))
    if not 1 <= len(found) <= ENDPOINTS_MAX:
        raise ValueError(f"endpoints: must be 1 to {ENDPOINTS_MAX} addresses, not {len(found)}")
    return found


def _endpoint(text: str) -> str:
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, closed, rest = text.partition("]")
        host += closed
        if rest:
            port = rest.removeprefix(":") if rest.startswith(":") else ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    elif ":" in text:
        raise ValueError(f"endpoints: {text!r}: an IPv6 address must stand in brackets")
    right = port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MAX
    if (
        not host
        or host == "[]"
        or not right
        or any(letter.isspace() or letter == "/" for letter in host)
    ):
        raise ValueError(f"endpoints: {text!r} is not HOST, HOST:PORT or [IPV6]:PORT")
    return f"{host}:{int(port)}"


def channel_options(tls: Tls | None) -> Sequence[tuple[str, int | str]]:
    """Return gRPC's options of a channel."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
        ("grpc.max_send_message_length", -1),  # what is too large is refused before it is encoded
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # Which node is tried when is decided here; gRPC's own pauses would hide that one is back.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if tls is not None and tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options
