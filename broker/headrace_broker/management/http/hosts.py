"""The names by which a node may be asked over HTTP in the clear.

A page of somebody else can have its own name lead to this node's address, and is of the same origin
then as far as a browser can tell (DNS rebinding). It cannot have the browser say another name than
its own in `Host`, nor an address. Over TLS the browser holds the name against the certificate.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from headrace_broker.management.http.answer import ApiError
from headrace_broker.runtime.security.unproven_log import unproven

LOCALHOST: Final = "localhost"
_SHOWN_CHARACTERS: Final = 255  # of a name that is refused

_LOG: Final = logging.getLogger("headrace.http")


class Hosts:
    """Judges the header `Host` by a node's names, those of loopback and all addresses.

    A name that begins with `*.` stands for all names that end so.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        known = {name.lower().removesuffix(".") for name in names if name}
        self._names = {name for name in known if not name.startswith("*.")} | {LOCALHOST}
        self._endings = tuple(sorted(name[1:] for name in known if name.startswith("*.")))

    def allows(self, header: str) -> bool:
        """Return whether a request with this `Host` may be meant for this node."""
        host = _host_of(header)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return (
                host in self._names
                or host.endswith(f".{LOCALHOST}")
                or (bool(self._endings) and host.endswith(self._endings))
            )
        return True

    def check(self, request: web.Request) -> None:
        """Refuse, by ApiError 421, a request that a browser was led here with."""
        header = request.headers.get("Host", "")
        if request.secure or not header or self.allows(header):
            return
        shown = header[:_SHOWN_CHARACTERS]
        text = "Host: %r is no name of this node; http.hosts in its configuration may allow it"
        _LOG.info("HTTP from %s: " + text, request.remote, shown, extra=_of(request))
        raise ApiError(421, "misdirected_request", text % shown)


def _of(request: web.Request) -> dict[str, str]:
    return unproven(request.remote or "")


def _host_of(header: str) -> str:
    """Return the host that a header names, in small letters, without port and brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")
