"""A network that loses, repeats, delays and reorders messages, and can be cut one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_raftlog.model.message import Message
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.parameters import Parameters

TAIL_FACTOR: Final = 30  # how much longer than usual a delayed message may take


class Network:
    """Carries messages between processes.

    Args:
        deliver: called with each message that arrives.
    """

    def __init__(
        self, loop: Loop, parameters: Parameters, deliver: Callable[[Message], None]
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.deliver = deliver
        self.cuts: dict[tuple[int, int], bool] = {}

    def connected(self, source: int, target: int) -> bool:
        """Return whether messages from `source` reach `target` at all."""
        return (source, target) not in self.cuts

    def cut(self, source: int, target: int) -> None:
        """Lose everything that `source` sends to `target`, from now on."""
        self.cuts[source, target] = True

    def heal(self) -> None:
        """End all cuts."""
        self.cuts.clear()

    def send(self, message: Message) -> bool:
        """Take a message; it arrives never (then return False), once or twice, later."""
        rng = self.loop.rng
        parameters = self.parameters
        if (message.source, message.target) in self.cuts or rng.random() < parameters.drop:
            if self.loop.tracing:
                self.loop.trace(f"lost     {message!r}")
            return False
        self.loop.after(self._delay(), self._arrive, message)
        if rng.random() < parameters.duplicate:
            self.loop.after(self._delay(), self._arrive, message)
        return True

    def _delay(self) -> int:
        rng = self.loop.rng
        delay = 1 + int(rng.random() * self.parameters.delay_max)
        if rng.random() < self.parameters.tail:
            delay *= 1 + int(rng.random() * TAIL_FACTOR)
        return delay

    def _arrive(self, message: Message) -> None:
        if (message.source, message.target) not in self.cuts:
            self.deliver(message)
