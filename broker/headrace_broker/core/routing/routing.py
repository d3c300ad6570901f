"""Which queues a message goes to: exchanges and bindings of all vhosts.

A delayed exchange routes at once, as the type in its argument `x-delayed-type` does. The delay is
the queues' affair: each holds back any message with an integer header `x-delay`, in milliseconds,
whatever exchange it came through. So bindings count as they are when a message is published, where
RabbitMQ's plug-in asks for them when the delay is over, and a delayed message is as safe as others.
"""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.routing.consistent_hash import ConsistentHashMatcher
from headrace_broker.core.routing.header_match import HeadersMatcher
from headrace_broker.core.routing.local_random import Locality, LocalRandomMatcher
from headrace_broker.core.routing.matcher import (
    Destination,
    DirectMatcher,
    FanoutMatcher,
    Matcher,
    Subject,
)
from headrace_broker.core.routing.topic_matcher import TopicMatcher
from headrace_broker.model.definition import (
    EXCHANGE_CONSISTENT_HASH,
    EXCHANGE_DELAYED,
    EXCHANGE_LOCAL_RANDOM,
    Binding,
    Exchange,
)
from headrace_broker.model.exchange_argument import ALTERNATE_EXCHANGE, DELAYED_TYPE
from headrace_broker.model.limits import ROUTING_LOAD_MAX, ROUTING_WORK_MAX
from headrace_broker.model.reply_queue import REPLY_PREFIX

TO_EXCHANGE: Final = "exchange"
DEFAULT_EXCHANGE: Final = ""
EXCHANGE_STEPS: Final = 16  # of `Subject.work` for an exchange on the way, whatever its bindings


@mypyc_attr(allow_interpreted_subclasses=True)
class Alternates:
    """Alternate exchanges by policy, evaluated when first needed. This one knows no policies.

    Subclassed where the catalog is known.
    """

    def of(self, vhost: str, exchange: str) -> str | None:
        """Return the name of the alternate that a policy gives an exchange, None for none."""
        return None


@final
class RouteStamp:
    """Validity check of a resolution at an exchange."""

    def __init__(self) -> None:
        self.version: i64 = 0  # counts up with every change that may lead messages elsewhere
        self.remembered: i64 = 0  # routes that somebody keeps for it


@final
class Resolution:
    """Destinations of a message."""

    def __init__(
        self,
        known: bool,
        internal: bool,
        queues: tuple[str, ...],
        replies: tuple[str, ...] = (),
        needs_message: bool = False,
        needs_headers: bool = False,
        work: i64 = 0,
        stamp: RouteStamp | None = None,
        problem: str = "",
    ) -> None:
        self.known = known  # whether the exchange exists; the default exchange always does
        self.internal = internal  # whether clients may not publish to it
        self.queues = queues  # names of the queues, ascending, each once
        self.replies = replies  # names of direct reply-to consumers, REPLY_PREFIX and a token each
        self.needs_message = needs_message  # whether other properties could lead to other queues
        self.needs_headers = needs_headers  # whether decoded headers are among them
        self.work = work  # steps that it took, each some 30 ns
        self.stamp = stamp  # the resolution holds at its version; None for no stamp
        # why the message is refused, for it takes more than ROUTING_WORK_MAX steps; "" when it is
        # not. It goes nowhere then.
        self.problem = problem


@final
class ExchangeTable(Destination):
    """An exchange, the bindings that leave it and how many lead to which exchange."""

    def __init__(self, exchange: Exchange, locality: Locality) -> None:
        super().__init__(exchange.name)
        self.internal: bool = exchange.internal  # only other exchanges may feed it
        self.matcher = _new_matcher(exchange, locality)  # its bindings, as its type reads them
        self.exchanges: dict[ExchangeTable, int] = {}  # bindings whatever their routing key
        self.stamp = RouteStamp()  # of what its own bindings say
        alternate: object = exchange.arguments.get(ALTERNATE_EXCHANGE)
        # name of the exchange for what no binding takes, None for none
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.settled: bool = self.alternate is not None  # `alternate` is known, not to be asked
        self.needs_headers = False  # whether headers matter from here, at this version
        self.needs_headers_version: i64 = -1


def _new_matcher(exchange: Exchange, locality: Locality) -> Matcher:
    kind = exchange.type
    inner: object = exchange.arguments.get(DELAYED_TYPE) if kind == EXCHANGE_DELAYED else kind
    if inner == "direct":
        return DirectMatcher()
    if inner == "fanout":
        return FanoutMatcher()
    if inner == "topic":
        return TopicMatcher()
    if inner == "headers":
        return HeadersMatcher()
    if inner == EXCHANGE_CONSISTENT_HASH:
        return ConsistentHashMatcher(exchange.arguments)
    if inner == EXCHANGE_LOCAL_RANDOM:
        return LocalRandomMatcher(exchange.vhost, locality)
    raise ValueError(f"unknown exchange type '{kind}'")


@final
class VhostTable:
    """The exchanges and queues of a vhost, by name."""

    def __init__(self) -> None:
        self.stamp = RouteStamp()  # of routes through several exchanges, and of the default one
        self.exchanges: dict[str, ExchangeTable] = {}
        self.queues: dict[str, Destination] = {}


@final
class Routing:
    """Exchanges, queues and bindings of all vhosts, kept in step by a follower of the catalog.

    Changes come in the catalog's order: a binding after its ends, and its removal before theirs.
    One that contradicts what is there raises KeyError and leaves everything as it was.

    Args:
        locality: tells local random exchanges which queues are led here; None for none.
        alternates: tells the alternates of exchanges without an argument; None for none.
    """

    def __init__(
        self, locality: Locality | None = None, alternates: Alternates | None = None
    ) -> None:
        self.version: i64 = 0  # counts changes; what another version resolved may be wrong
        self._alternates = Alternates() if alternates is None else alternates
        self._locality = Locality() if locality is None else locality
        self._vhosts: dict[str, VhostTable] = {}

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange that is not there; ValueError where its type is not known."""
        table = self._vhost(exchange.vhost)
        if exchange.name in table.exchanges:
            raise KeyError(exchange.name)
        table.exchanges[exchange.name] = ExchangeTable(exchange, self._locality)
        self._changed(table)

    def remove_exchange(self, vhost: str, name: str) -> None:
        """Remove an exchange that has no bindings left."""
        table = self._vhosts[vhost]
        gone = table.exchanges.pop(name)
        self._forget_empty(vhost, table)
        self._changed(table, gone)

    def add_queue(self, vhost: str, name: str) -> None:
        """Add a queue that is not there; the default exchange leads to it."""
        table = self._vhost(vhost)
        if name in table.queues:
            raise KeyError(name)
        table.queues[name] = Destination(name)
        self._changed(table)

    def remove_queue(self, vhost: str, name: str) -> None:
        """Remove a queue that has no bindings left."""
        table = self._vhosts[vhost]
        del table.queues[name]
        self._forget_empty(vhost, table)
        self._changed(table)

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
        self._changed(table, source)

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
        self._changed(table, source)

    def forget_alternate(self, vhost: str, exchange: str) -> None:
        """Ask again for an exchange's alternate once it matters; KeyError without exchange."""
        table = self._vhosts[vhost]
        source = table.exchanges[exchange]
        source.settled = False
        self._changed(table, source)

    def _alternate(self, vhost: str, source: ExchangeTable) -> str | None:
        if not source.settled:
            source.alternate = self._alternates.of(vhost, source.name)
            source.settled = True
        return source.alternate

    def _changed(self, table: VhostTable, source: ExchangeTable | None = None) -> None:
        self.version += 1
        table.stamp.version += 1
        if source is not None:
            source.stamp.version += 1

    def load_problem(self, binding: Binding) -> str:
        """Return why a binding would make its exchange too costly, "" when it does not.

        Binding what is bound already costs nothing; one whose ends are not there is not judged.
        """
        table = self._vhosts.get(binding.vhost)
        source = table.exchanges.get(binding.source) if table is not None else None
        if source is None:
            return ""
        load = source.matcher.load + source.matcher.load_of(binding)
        if load <= ROUTING_LOAD_MAX or load == source.matcher.load:
            return ""
        return (
            f"exchange '{binding.source}' in vhost '{binding.vhost}' has bindings with "
            f"{source.matcher.load} words in patterns with wildcards, or headers; with this one "
            f"there would be more than {ROUTING_LOAD_MAX}"
        )

    def route(
        self, vhost: str, exchange: str, routing_key: str, headers: dict[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Return the names of the queues that a message goes to, ascending, each once.

        `headers` are the message's, as plain values; None is the same as none.
        """
        return self.resolve(vhost, exchange, Subject([routing_key], headers or {})).queues

    def resolve(self, vhost: str, exchange: str, subject: Subject) -> Resolution:
        """Return a message's destinations, and the exchange's facts.

        It ends before all was looked at where that takes more than ROUTING_WORK_MAX steps; see
        `Resolution.problem`.
        """
        table = self._vhosts.get(vhost)
        if exchange == DEFAULT_EXCHANGE:
            return _resolve_default(table, subject)
        start = table.exchanges.get(exchange) if table is not None else None
        if table is None or start is None:
            return Resolution(False, False, ())
        needs_message = False
        queues: dict[str, None] = {}
        passed: dict[Destination, None] = {start: None}
        pending: list[ExchangeTable] = [start]
        while pending and subject.work <= subject.work_max:
            source = pending.pop()
            subject.work += EXCHANGE_STEPS
            matcher = source.matcher
            needs_message = needs_message or matcher.reads_headers or matcher.reads_properties
            found: dict[Destination, None] = {}
            matcher.match(subject, found)
            if not found:
                alternate = self._alternate(vhost, source)
                if alternate is not None:
                    _find_alternate(table, alternate, subject, found)
            for destination in found:
                if destination in passed:
                    continue
                passed[destination] = None
                subject.work_max += 1
                if isinstance(destination, ExchangeTable):
                    pending.append(destination)
                else:
                    queues[destination.name] = None
        needs_headers = needs_message and self.needs_headers(vhost, exchange)
        spent = subject.work > subject.work_max
        names = () if spent else tuple(sorted(queues))
        # What leads through this exchange alone changes with its bindings only.
        alone = not start.exchanges and start.alternate is None
        stamp = start.stamp if alone else table.stamp
        problem = _work_problem(vhost, exchange, subject) if spent else ""
        work = subject.work
        return Resolution(
            True, start.internal, names, (), needs_message, needs_headers, work, stamp, problem
        )

    def needs_headers(self, vhost: str, exchange: str) -> bool:
        """Return whether headers matter to an exchange's messages, whatever their key."""
        table = self._vhosts.get(vhost)
        start = table.exchanges.get(exchange) if table is not None else None
        if table is None or start is None:
            return False
        if start.needs_headers_version != table.stamp.version:
            start.needs_headers = self._reads_headers(vhost, table, start)
            start.needs_headers_version = table.stamp.version
        return start.needs_headers

    def _reads_headers(self, vhost: str, table: VhostTable, start: ExchangeTable) -> bool:
        """Return whether an exchange that messages may come to from `start` looks at headers."""
        passed: dict[ExchangeTable, None] = {start: None}
        pending: list[ExchangeTable] = [start]
        while pending:
            source = pending.pop()
            if source.matcher.reads_headers:
                return True
            targets = list(source.exchanges)
            name = self._alternate(vhost, source)
            alternate = table.exchanges.get(name) if name else None
            if alternate is not None:
                targets.append(alternate)
            for target in targets:
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


def _work_problem(vhost: str, exchange: str, subject: Subject) -> str:
    keys = len(subject.routing_keys)
    return (
        f"the route of a message with {keys} routing key{'s' if keys > 1 else ''} at exchange "
        f"'{exchange}' in vhost '{vhost}' takes more than {ROUTING_WORK_MAX} steps: fewer keys in "
        f"CC and BCC, patterns with wildcards, headers in bindings or exchanges on the way are "
        f"needed"
    )


def _resolve_default(table: VhostTable | None, subject: Subject) -> Resolution:
    """Resolve each routing key to the queue of that name, or to a waiting direct reply."""
    queues: dict[str, None] = {}
    replies: dict[str, None] = {}
    for routing_key in subject.routing_keys:
        if table is not None and routing_key in table.queues:
            queues[routing_key] = None
        elif routing_key.startswith(REPLY_PREFIX):
            replies[routing_key] = None
    stamp = table.stamp if table is not None else None
    return Resolution(True, False, tuple(sorted(queues)), tuple(replies), stamp=stamp)


def _find_alternate(
    table: VhostTable, alternate: str, subject: Subject, found: dict[Destination, None]
) -> None:
    """Find an alternate exchange, or the queues that the default exchange stands for."""
    if alternate == DEFAULT_EXCHANGE:
        subject.work += len(subject.routing_keys)
        for routing_key in subject.routing_keys:
            queue = table.queues.get(routing_key)
            if queue is not None:
                found[queue] = None
        return
    target = table.exchanges.get(alternate)
    if target is not None:
        found[target] = None
