"""Who makes a call: Basic credentials in its metadata."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote

import grpc

from headrace_broker.gateways.grpc.errors import CallError, Context
from headrace_broker.runtime.authenticator import is_loopback
from headrace_broker.runtime.basic_credentials import parse_basic
from headrace_broker.runtime.port import Broker

AUTHORIZATION: Final = "authorization"


class Caller(NamedTuple):
    """A user who has proven to be one.

    Attributes:
        user: their name.
        tags: what kind of user it is.
        host: address of the client's end of the connection.
        port: its port, 0 where there is none.
    """

    user: str
    tags: tuple[str, ...]
    host: str
    port: int


def parse_peer(peer: str) -> tuple[str, int]:
    """Return host and port of what gRPC says of a peer: "ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5"."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return address, 0
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port) if port.isdigit() else 0


async def authenticate(broker: Broker, context: Context) -> Caller:
    """Return who makes a call.

    Raises:
        CallError: UNAUTHENTICATED.
    """
    host, port = parse_peer(context.peer())
    for key, value in context.invocation_metadata() or ():
        if key == AUTHORIZATION and isinstance(value, str):
            login = parse_basic(value)
            if login is None or not await broker.authenticate(*login, is_loopback(host)):
                break
            return Caller(login[0], broker.user_tags(login[0]), host, port)
    raise CallError(
        grpc.StatusCode.UNAUTHENTICATED,
        "NOT_AUTHORIZED",
        "metadata authorization: log in with Basic and a user of the broker",
    )
