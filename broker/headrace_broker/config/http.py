"""The part of the configuration about the HTTP API."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

HostName = Annotated[
    str,
    Meta(
        pattern=r"^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$",
        description="the name of a host, without a port, or '*.' and what names end with",
    ),
]


class HttpSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP API."""

    # names by which clients reach this node besides those that it knows itself: of a reverse proxy
    # that passes Host on, of a Service. Addresses need not be named.
    hosts: Annotated[tuple[HostName, ...], Meta(max_length=256, description="1 to 256 names")] = ()
