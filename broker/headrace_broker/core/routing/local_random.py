"""Local random exchanges: each message goes to one queue that this node leads, drawn at random.

Bindings have no routing key and lead to queues, as with RabbitMQ; keys of messages are disregarded.
Which queues are led here, and which number is drawn, is decided by the owner of the tables: this is
decided where a message is published and never replicated.

Source: https://www.rabbitmq.com/docs/local-random-exchange.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.routing.matcher import (
    Destination,
    Matcher,
    Subject,
    count_down,
    count_up,
)
from headrace_broker.model.definition import Binding

_DRAWS: Final = 16  # before all are examined; with a third of the queues here 0.2 % get that far
_STEPS: Final = 5  # of `Subject.work` for a look at one queue


class Locality:
    """Knowledge of local queues, and random draws. This one finds nothing here.

    Subclassed where nodes and randomness are known.
    """

    def is_local(self, vhost: str, queue: str) -> bool:
        """Return whether this node leads a queue."""
        return False

    def draw(self, count: int) -> int:
        """Return a random number from 0 to `count` - 1."""
        raise AssertionError("nothing is here to be drawn from")


@final
class LocalRandomMatcher(Matcher):
    """Queues, each drawn with equal chance among those that are led here.

    Args:
        vhost: of the exchange.
        locality: of this node.
    """

    def __init__(self, vhost: str, locality: Locality) -> None:
        super().__init__()
        self.reads_properties = True  # no route is remembered: each message is drawn for
        self._vhost = vhost
        self._locality = locality
        self._counts: dict[Destination, int] = {}
        self._queues: list[Destination] = []  # the keys of `_counts`, to be drawn from
        self._places: dict[Destination, int] = {}  # where each stands there

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding; a second one to a queue, with other arguments, changes no chance."""
        if destination not in self._counts:
            self._places[destination] = len(self._queues)
            self._queues.append(destination)
        count_up(self._counts, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        count_down(self._counts, destination)
        if destination in self._counts:
            return
        place = self._places.pop(destination)
        last = self._queues.pop()
        if last is not destination:
            self._queues[place] = last
            self._places[last] = place

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find one queue that is led here; none where there is none."""
        count: i64 = len(self._queues)
        drawn: i64 = 0
        while drawn < _DRAWS and drawn < count:
            drawn += 1
            queue = self._queues[self._locality.draw(count)]
            if self._locality.is_local(self._vhost, queue.name):
                subject.work += drawn * _STEPS
                found[queue] = None
                return
        subject.work += (drawn + count) * _STEPS
        is_local, vhost = self._locality.is_local, self._vhost
        here = [queue for queue in self._queues if is_local(vhost, queue.name)]
        if here:
            found[here[self._locality.draw(len(here))]] = None
