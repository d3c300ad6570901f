"""Basic credentials of HTTP and gRPC requests."""

from __future__ import annotations

import base64
import binascii


def parse_basic(header: str) -> tuple[str, str] | None:
    """Return user and password of an `authorization` header, None when it holds no such pair.

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
