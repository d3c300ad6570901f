"""A network that loses, repeats, delays and reorders messages, and can be cut one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.parameters import Parameters

TAIL_FACTOR: Final = 30  # how much longer than usual a delayed message may take


@final
class Parcel:
    """A message in flight from one node to another, within one session of their link."""

    def __init__(
        self,
        source: int,
        target: int,
        session: int,
        source_boot: int,
        target_boot: int,
        content: object,
    ) -> None:
        self.source = source
        self.target = target
        self.session = session
        self.source_boot = source_boot
        self.target_boot = target_boot
        self.content = content


@final
class Network:
    """Carries messages between nodes.

    What a node sent before it restarted no longer arrives once it runs again, as a connection of
    its old process is gone; what others sent to it meanwhile does if the run says so.

    Args:
        deliver: called with source node, target node and content of what arrives.
        lost: called with two nodes that notice that their session broke.

    Attributes:
        cuts: links, from source to target, on which everything is lost.
        disturbed_at: until when links lost something, or took longer than usual.
    """

    def __init__(
        self,
        loop: Loop,
        parameters: Parameters,
        deliver: Callable[[int, int, object], None],
        lost: Callable[[int, int], None],
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.deliver = deliver
        self.lost = lost
        self.cuts: dict[tuple[int, int], bool] = {}
        self.disturbed_at: dict[tuple[int, int], int] = {}
        self.sessions: dict[tuple[int, int], int] = {}
        self.boots: dict[int, int] = {}

    def connected(self, source: int, target: int) -> bool:
        """Return whether messages from `source` reach `target` at all."""
        return (source, target) not in self.cuts

    def cut(self, source: int, target: int) -> None:
        """Lose everything that `source` sends to `target`, from now on."""
        self.cuts[source, target] = True
        self._disturb((source, target), 0)

    def mend(self, source: int, target: int) -> None:
        """End a cut, if there is one."""
        if self.cuts.pop((source, target), False):
            self._disturb((source, target), 0)

    def heal(self) -> None:
        """End all cuts."""
        for source, target in list(self.cuts):
            self.mend(source, target)

    def calm_since(self, one: int, other: int) -> int:
        """Return since when all that was sent between two nodes arrived in time; now for a cut."""
        links = ((one, other), (other, one))
        if links[0] in self.cuts or links[1] in self.cuts:
            return self.loop.now
        return max(self.disturbed_at.get(links[0], 0), self.disturbed_at.get(links[1], 0))

    def break_session(self, one: int, other: int) -> None:
        """Lose all that is under way between two nodes, and tell both, as a broken frame does."""
        for link in ((one, other), (other, one)):
            self.sessions[link] = self.sessions.get(link, 0) + 1
            self._disturb(link, 0)
        self.lost(one, other)

    def send(self, source: int, target: int, content: object) -> bool:
        """Take a message; it arrives never (then return False), once or twice, later."""
        rng = self.loop.rng
        parameters = self.parameters
        link = (source, target)
        if link in self.cuts or rng.random() < parameters.drop:
            self._disturb(link, 0)
            if self.loop.tracing:
                self.loop.trace(f"lost     {content!r}")
            return False
        boots = self.boots
        parcel = Parcel(
            source,
            target,
            self.sessions.get(link, 0),
            boots.get(source, 0),
            boots.get(target, 0),
            content,
        )
        self.loop.after(self._delay(link), self._arrive, parcel)
        if rng.random() < parameters.duplicate:
            self.loop.after(self._delay(link), self._arrive, parcel)
        return True

    def _disturb(self, link: tuple[int, int], units: int) -> None:
        until = self.loop.now + units
        if until > self.disturbed_at.get(link, 0):
            self.disturbed_at[link] = until

    def _delay(self, link: tuple[int, int]) -> int:
        rng = self.loop.rng
        delay = 1 + int(rng.random() * self.parameters.delay_max)
        if rng.random() < self.parameters.tail:
            delay *= 1 + int(rng.random() * TAIL_FACTOR)
            self._disturb(link, delay)
        return delay

    def _arrive(self, parcel: Parcel) -> None:
        link = (parcel.source, parcel.target)
        if link in self.cuts or self.sessions.get(link, 0) != parcel.session:
            return
        if self.boots.get(parcel.source, 0) != parcel.source_boot:
            return
        restarted = self.boots.get(parcel.target, 0) != parcel.target_boot
        if restarted and not self.parameters.carries_over:
            return
        self.deliver(parcel.source, parcel.target, parcel.content)
