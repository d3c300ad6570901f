"""`headrace log`: look into a node's log, which must not be running."""

from __future__ import annotations

import click


@click.group()
def log() -> None:
    """Verify or dump the log in a node's data directory, while the node is stopped."""
