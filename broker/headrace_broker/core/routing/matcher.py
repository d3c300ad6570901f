"""Which of an exchange's bindings a message takes: one class per exchange type."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from headrace_broker.model.definition import Binding

_NO_HEADERS: Final[dict[str, Any]] = {}


class Destination:
    """A queue or an exchange that bindings lead to, one object each; compared by identity.

    Attributes:
        name: of the queue or exchange.
    """

    def __init__(self, name: str) -> None:
        self.name = name


@final
class Subject:
    """What of a message decides where it goes.

    Attributes:
        routing_keys: the one that it was published with, then those of its headers CC and BCC.
        headers: plain values; empty where no matcher on the way reads them.
        properties: its property block, b"" where no matcher on the way reads it.
        work: steps that matchers have taken for it, each some 0.1 us.
    """

    def __init__(
        self,
        routing_keys: list[str],
        headers: dict[str, Any] = _NO_HEADERS,
        properties: bytes = b"",
    ) -> None:
        self.routing_keys = routing_keys
        self.headers = headers
        self.properties = properties
        self.work: i64 = 0


class Matcher:
    """The bindings that leave one exchange.

    Attributes:
        reads_headers: whether `match` looks at decoded headers.
        reads_properties: whether `match` looks at the property block.
        load: what each message may have to be compared with: places of topic patterns in blocks, or
            headers that bindings want.
    """

    reads_headers: bool
    reads_properties: bool
    load: i64

    def __init__(self) -> None:
        self.load = 0
        self.reads_headers = False
        self.reads_properties = False

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding that is not there yet."""
        raise AssertionError("abstract")

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding that is there.

        Raises:
            KeyError: it is not there; nothing changed.
        """
        raise AssertionError("abstract")

    def load_of(self, binding: Binding) -> int:
        """Return what a binding that is not there yet would add to `load`."""
        return 0

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Add the destinations of all bindings that take a message to `found`, which is empty."""
        raise AssertionError("abstract")


def count_up(counts: dict[Destination, int], destination: Destination) -> None:
    """Note one more binding to a destination."""
    counts[destination] = counts.get(destination, 0) + 1


def count_down(counts: dict[Destination, int], destination: Destination) -> None:
    """Note one binding less to a destination; the last one takes it away.

    Raises:
        KeyError: there is none.
    """
    count = counts[destination] - 1
    if count > 0:
        counts[destination] = count
    else:
        del counts[destination]


@final
class FanoutMatcher(Matcher):
    """Every binding takes every message."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Destination, int] = {}

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        count_up(self._counts, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        count_down(self._counts, destination)

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find all destinations."""
        for destination in self._counts:
            found[destination] = None


@final
class DirectMatcher(Matcher):
    """A binding takes messages with exactly its routing key."""

    def __init__(self) -> None:
        super().__init__()
        self._by_key: dict[str, dict[Destination, int]] = {}

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        counts = self._by_key.get(binding.routing_key)
        if counts is None:
            counts = {}
            self._by_key[binding.routing_key] = counts
        count_up(counts, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        counts = self._by_key[binding.routing_key]
        count_down(counts, destination)
        if not counts:
            del self._by_key[binding.routing_key]

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of a message's routing keys."""
        for routing_key in subject.routing_keys:
            counts = self._by_key.get(routing_key)
            if counts is not None:
                for destination in counts:
                    found[destination] = None
