"""Basic authentication of HTTP requests against the catalog's users."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace_broker.management.status_source import StatusSource

REMEMBERED_MAX: Final = 256  # log-ins remembered; the oldest goes first
REMEMBERED_S: Final = 10.0  # seconds; a page that polls must not cost a password hash each time


def is_loopback(remote: str | None) -> bool:
    """Return whether a peer address is the machine itself."""
    try:
        address = ipaddress.ip_address((remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def parse_basic(header: str) -> tuple[str, str] | None:
    """Return user and password of an Authorization header, None when it holds no such pair.

    Source: RFC 7617, section 2.
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    user, colon, password = text.partition(":")
    return (user, password) if colon else None


class Authenticator:
    """Checks log-ins and remembers good ones for a few seconds.

    A password that was changed is thus accepted for up to REMEMBERED_S longer.
    """

    def __init__(self, source: StatusSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._good: OrderedDict[bytes, float] = OrderedDict()

    async def check(self, header: str, remote: str | None) -> bool:
        """Return whether a request with this Authorization header from this peer may be served."""
        login = parse_basic(header)
        if login is None:
            return False
        loopback = is_loopback(remote)
        key = hashlib.sha256(f"{loopback}:{len(login[0])}:{login[0]}:{login[1]}".encode()).digest()
        if self._good.get(key, 0.0) > self._clock():
            return True
        if not await self._source.authenticate(login[0], login[1], loopback):
            self._good.pop(key, None)
            return False
        self._good[key] = self._clock() + REMEMBERED_S
        self._good.move_to_end(key)
        if len(self._good) > REMEMBERED_MAX:
            self._good.popitem(last=False)
        return True
