"""Identity of a caller: Basic credentials in its metadata, or a client certificate."""

from __future__ import annotations

import math
import re
import secrets
from typing import Final, NamedTuple
from urllib.parse import unquote

import grpc

from headrace_broker.catalog.access import Caller as User
from headrace_broker.gateways.grpc.server.errors import CallError, Context
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.security.audit import ACTOR, Actor, record_by
from headrace_broker.runtime.security.basic_credentials import parse_basic
from headrace_broker.runtime.security.certificate import CertificateRefusedError
from headrace_broker.runtime.security.tls import ServerTls

AUTHORIZATION: Final = "authorization"
REQUEST_ID: Final = "x-request-id"
PROTOCOL: Final = "grpc"

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Caller(NamedTuple):
    """An authenticated user."""

    user: str  # their name
    tags: tuple[str, ...]  # what kind of user it is
    host: str  # address of the client's end of the connection
    port: int  # its port, 0 where there is none
    epoch: int = 0  # `CatalogView.session_epoch` as of the log-in

    @property
    def who(self) -> User:
        """The user as permissions know it."""
        return User(self.user, self.tags)


def parse_peer(peer: str) -> tuple[str, int]:
    """Return host and port of what gRPC says of a peer: "ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5"."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return address, 0
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port) if port.isdigit() else 0


async def authenticate(broker: Broker, context: Context, tls: ServerTls | None = None) -> Caller:
    """Return who makes a call, and note who it is for what this task does from now on.

    Args:
        broker: knows the users.
        context: of the call.
        tls: reads client certificates; None where there is no listener for TLS.

    Raises:
        CallError: UNAUTHENTICATED.
    """
    host, port = parse_peer(context.peer())
    metadata: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            metadata.setdefault(key, value)  # the first counts
    try:
        certified = _certified(context, tls)
    except CallError as error:
        record_by(Actor("", f"{host}:{port}", PROTOCOL), "login", "", error.text)
        raise
    given = metadata.get(AUTHORIZATION)
    login = parse_basic(given) if given is not None else None
    user = login[0] if login is not None else certified
    request = metadata.get(REQUEST_ID, "")
    number = request if _REQUEST_ID.fullmatch(request) else secrets.token_hex(8)
    ACTOR.set(Actor(user, f"{host}:{port}", PROTOCOL, number))
    if login is not None:
        verdict = await broker.authenticator.check(*login, host)
        if verdict.wait_s > 0:
            raise _later(verdict.wait_s)
        right, epoch = verdict.right, verdict.epoch
    else:
        right = given is None and bool(user) and broker.authenticator.admits(user, host)
        epoch = broker.standings.epoch(user)
    if not right:
        raise _refused("metadata authorization: log in with Basic and a user of the broker")
    return Caller(user, broker.user_tags(user), host, port, epoch)


def _certified(context: Context, tls: ServerTls | None) -> str:
    """Return the user whom the client's certificate stands for, "" for none.

    Raises:
        CallError: UNAUTHENTICATED, it was revoked.
    """
    if tls is None:
        return ""
    try:
        session = tls.describe_grpc(context.auth_context())
    except CertificateRefusedError as error:
        raise _refused(f"the client's certificate is refused: {error}") from None
    return session.login if session.external else ""


def _refused(text: str) -> CallError:
    return CallError(grpc.StatusCode.UNAUTHENTICATED, "NOT_AUTHORIZED", text)


def _later(wait_s: float) -> CallError:
    return CallError(
        grpc.StatusCode.UNAUTHENTICATED,
        "TOO_MANY_FAILURES",
        f"too many log-ins have failed; the next one is looked at in {math.ceil(wait_s)} s",
        retry_ms=math.ceil(wait_s * 1000),
    )
