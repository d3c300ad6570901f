"""The event loop of a node, a turn at a time."""

from __future__ import annotations

from typing import Any


def loop_turn(broker: Any, *peers: Any) -> None:
    """One turn of the loop: earlier callbacks, then the ends of turns."""
    soon, broker.soon = broker.soon, []
    for callback in soon:
        callback()
    for peer in peers:
        peer.shell.step()
        if peer.shell.woken:
            peer.shell.woken = False
            peer.connection.flush()
