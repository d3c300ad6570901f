"""Which of an exchange's bindings a message takes: one class per exchange type."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from headrace_broker.core.routing.topic_pattern import split_words
from headrace_broker.model.definition import Binding
from headrace_broker.model.limits import ROUTING_WORK_MAX

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
    """Parts of a message that decide its route.

    Attributes:
        routing_keys: the one that it was published with, then those of its headers CC and BCC, each
            once.
        headers: plain values; empty where no matcher on the way reads them.
        properties: its property block, b"" where no matcher on the way reads it.
        work: steps that were taken for it, each some 30 ns.
        work_max: steps that may be taken; each place that it goes to adds one. A matcher that finds
            it spent stops where it is, and the message is refused.
    """

    def __init__(
        self,
        routing_keys: list[str],
        headers: dict[str, Any] = _NO_HEADERS,
        properties: bytes = b"",
    ) -> None:
        self.routing_keys = routing_keys
        if len(routing_keys) > 1:
            self.routing_keys = list(dict.fromkeys(routing_keys))
        self.headers = headers
        self.properties = properties
        self.work: i64 = 0
        self.work_max: i64 = ROUTING_WORK_MAX
        self._words: list[list[str]] = []

    def words(self) -> list[list[str]]:
        """Return the words of each routing key, cut once however many exchanges ask."""
        if not self._words:
            self._words = [split_words(key) for key in self.routing_keys]
        return self._words

    def is_spent(self, found: dict[Destination, None]) -> bool:
        """Return whether the message takes more steps than it may.

        Args:
            found: destinations at the exchange that is being looked at.
        """
        return self.work > self.work_max + len(found)


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
        subject.work += len(self._counts)
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
            if subject.is_spent(found):
                return
            subject.work += 1
            counts = self._by_key.get(routing_key)
            if counts is not None:
                subject.work += len(counts)
                for destination in counts:
                    found[destination] = None
