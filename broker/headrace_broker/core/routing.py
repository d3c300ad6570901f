"""Which queues a message goes to: exchanges and bindings of all vhosts."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from headrace_broker.core.header_match import HeadersMatcher
from headrace_broker.core.matcher import Destination, DirectMatcher, FanoutMatcher, Matcher
from headrace_broker.core.topic import TopicMatcher
from headrace_broker.model.definition import Binding, Exchange

TO_EXCHANGE: Final = "exchange"
DEFAULT_EXCHANGE: Final = ""

_NO_HEADERS: Final[dict[str, Any]] = {}


@final
class Resolution:
    """Where a message goes.

    Attributes:
        known: whether the exchange exists; the default exchange always does.
        internal: whether clients may not publish to it.
        queues: names of the queues, ascending, each once.
        needs_headers: whether other headers could lead to other queues.
    """

    def __init__(
        self, known: bool, internal: bool, queues: tuple[str, ...], needs_headers: bool
    ) -> None:
        self.known = known
        self.internal = internal
        self.queues = queues
        self.needs_headers = needs_headers


@final
class ExchangeTable(Destination):
    """An exchange, the bindings that leave it and how many lead to which exchange.

    Attributes:
        internal: only other exchanges may feed it.
        matcher: its bindings, as its type reads them.
        exchanges: bindings to other exchanges, whatever their routing key.
    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.name)
        self.internal: bool = exchange.internal
        self.matcher = _new_matcher(exchange.type)
        self.exchanges: dict[ExchangeTable, int] = {}


def _new_matcher(kind: str) -> Matcher:
    if kind == "direct":
        return DirectMatcher()
    if kind == "fanout":
        return FanoutMatcher()
    if kind == "topic":
        return TopicMatcher()
    if kind == "headers":
        return HeadersMatcher()
    raise ValueError(f"unknown exchange type '{kind}'")


@final
class VhostTable:
    """The exchanges and queues of a vhost, by name."""

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeTable] = {}
        self.queues: dict[str, Destination] = {}


@final
class Routing:
    """Exchanges, queues and bindings of all vhosts, kept in step by whoever follows the catalog.

    Changes come in the catalog's order: a binding after its ends, and its removal before theirs.
    One that contradicts what is there raises KeyError and leaves everything as it was.

    Attributes:
        version: counts up with every change; what was resolved at another version may be wrong.
    """

    def __init__(self) -> None:
        self.version: i64 = 0
        self._vhosts: dict[str, VhostTable] = {}

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange that is not there.

        Raises:
            ValueError: its type is not known.
        """
        table = self._vhost(exchange.vhost)
        if exchange.name in table.exchanges:
            raise KeyError(exchange.name)
        table.exchanges[exchange.name] = ExchangeTable(exchange)
        self.version += 1

    def remove_exchange(self, vhost: str, name: str) -> None:
        """Remove an exchange that has no bindings left."""
        table = self._vhosts[vhost]
        del table.exchanges[name]
        self._forget_empty(vhost, table)
        self.version += 1

    def add_queue(self, vhost: str, name: str) -> None:
        """Add a queue that is not there; the default exchange leads to it."""
        table = self._vhost(vhost)
        if name in table.queues:
            raise KeyError(name)
        table.queues[name] = Destination(name)
        self.version += 1

    def remove_queue(self, vhost: str, name: str) -> None:
        """Remove a queue that has no bindings left."""
        table = self._vhosts[vhost]
        del table.queues[name]
        self._forget_empty(vhost, table)
        self.version += 1

    def add_binding(self, binding: Binding) -> None:
        """Add a binding that is not there; its ends are."""
        table = self._vhosts[binding.vhost]
        source = table.exchanges[binding.source]
        if binding.destination_type == TO_EXCHANGE:
            target = table.exchanges[binding.destination]
            source.matcher.add(binding, target)
            source.exchanges[target] = source.exchanges.get(target, 0) + 1
        else:
            source.matcher.add(binding, table.queues[binding.destination])
        self.version += 1

    def remove_binding(self, binding: Binding) -> None:
        """Remove a binding that is there; its ends still are."""
        table = self._vhosts[binding.vhost]
        source = table.exchanges[binding.source]
        if binding.destination_type == TO_EXCHANGE:
            target = table.exchanges[binding.destination]
            source.matcher.remove(binding, target)
            count = source.exchanges[target] - 1
            if count > 0:
                source.exchanges[target] = count
            else:
                del source.exchanges[target]
        else:
            source.matcher.remove(binding, table.queues[binding.destination])
        self.version += 1

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: dict[str, Any] | None = None,
    ) -> tuple[str, ...]:
        """Return the names of the queues that a message goes to, ascending, each once.

        `headers` are the message's, as plain values; None is the same as none.
        """
        return self.resolve(vhost, exchange, routing_key, headers).queues

    def resolve(
        self, vhost: str, exchange: str, routing_key: str, headers: dict[str, Any] | None
    ) -> Resolution:
        """Return where a message goes, and what is known of the exchange."""
        table = self._vhosts.get(vhost)
        if exchange == DEFAULT_EXCHANGE:
            if table is None or routing_key not in table.queues:
                return Resolution(True, False, (), False)
            return Resolution(True, False, (routing_key,), False)
        start = table.exchanges.get(exchange) if table is not None else None
        if start is None:
            return Resolution(False, False, (), False)
        given = headers if headers is not None else _NO_HEADERS
        needs_headers = False
        queues: list[str] = []
        passed: dict[Destination, None] = {start: None}
        pending: list[ExchangeTable] = [start]
        while pending:
            source = pending.pop()
            if source.matcher.reads_headers:
                needs_headers = True
            found: dict[Destination, None] = {}
            source.matcher.match(routing_key, given, found)
            for destination in found:
                if destination in passed:
                    continue
                passed[destination] = None
                if isinstance(destination, ExchangeTable):
                    pending.append(destination)
                else:
                    queues.append(destination.name)
        queues.sort()
        return Resolution(True, start.internal, tuple(queues), needs_headers)

    def needs_headers(self, vhost: str, exchange: str) -> bool:
        """Return whether headers matter to an exchange's messages, whatever their key."""
        table = self._vhosts.get(vhost)
        start = table.exchanges.get(exchange) if table is not None else None
        if start is None:
            return False
        passed: dict[ExchangeTable, None] = {start: None}
        pending: list[ExchangeTable] = [start]
        while pending:
            source = pending.pop()
            if source.matcher.reads_headers:
                return True
            for target in source.exchanges:
                if target not in passed:
                    passed[target] = None
                    pending.append(target)
        return False

    def _vhost(self, name: str) -> VhostTable:
        table = self._vhosts.get(name)
        if table is None:
            table = VhostTable()
            self._vhosts[name] = table
        return table

    def _forget_empty(self, vhost: str, table: VhostTable) -> None:
        if not table.exchanges and not table.queues:
            del self._vhosts[vhost]
