"""Names that limits of flow control had in data directories of earlier builds.

The catalog stores limits by name, in log entries and snapshots. Entries that are read again are
applied under today's names, so that a limit that was set stays in force.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "account-octets": "account-bytes",
    "commands": "queue-commands",
    "held-octets": "connection-buffer-bytes",
    "node-octets": "node-buffer-bytes",
    "queue-octets": "queue-pending-bytes",
    "tell-after-ms": "blocked-after-ms",
    "turn-messages": "intake-messages",
    "turn-octets": "intake-bytes",
}


def current_name(name: str) -> str:
    """Return the name that a stored limit has today."""
    return _NAMES.get(name, name)
