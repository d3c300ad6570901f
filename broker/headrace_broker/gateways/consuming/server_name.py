"""Names from the broker for consumers and queues without one from the client."""

from __future__ import annotations

import secrets
from typing import Final

_NAME_BYTES: Final = 16  # random bytes of a name


def server_name(prefix: str) -> str:
    """Return a unique name: the prefix and random characters."""
    return f"{prefix}{secrets.token_urlsafe(_NAME_BYTES)}"
