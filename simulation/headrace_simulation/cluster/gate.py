"""The clients of a process, as far as its node lets them in: none while it is drained."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from headrace_simulation.cluster.clients import Site, Wanted


@final
class ClientGate:
    """In the place of listeners: its clients are told to go, and go in good order."""

    def __init__(self, site: Site, reopened: Callable[[Site], None]) -> None:
        self._site = site
        self._wanted = site.wanted
        self._reopened = reopened  # called with the place where clients connect then

    async def open(self) -> None:
        """Open for clients."""
        before = self._site
        if before.wanted is self._wanted:
            return
        place = (before.process, before.node, before.history, self._wanted, before.rng)
        self._site = site = Site(*place)
        site.numbers, site.tasks = before.numbers, before.tasks
        self._reopened(site)

    async def suspend(self) -> None:
        """Close for new clients; those who are there stay, for a moment."""

    async def dismiss(self, reason: str) -> None:
        """Tell clients to go."""
        self._site.process.note(f"dismisses clients: {reason}")
        nothing = Wanted()
        nothing.publishes = nothing.consumes = False
        self._site.wanted = nothing
