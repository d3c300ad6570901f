"""Headers exchanges: bindings whose arguments a message's headers must equal.

Source: AMQP 0-9-1, section 3.1.3.4, with `all-with-x` and `any-with-x` of RabbitMQ.
"""

from __future__ import annotations

from typing import Any, Final, final

from headrace_broker.core.routing.matcher import Destination, Matcher, Subject
from headrace_broker.model.binding_key import BindingKey, binding_key
from headrace_broker.model.definition import Binding

X_MATCH: Final = "x-match"
PRIVATE_PREFIX: Final = "x-"  # such arguments are for the broker unless x-match says "-with-x"


def header_equal(wanted: object, given: object) -> bool:
    """Return whether a header has the value that a binding wants, by RabbitMQ 4's comparison.

    Integers are equal by value whatever their width, and so are floats; an integer, a float and a
    boolean are never equal to each other. Strings and byte arrays are equal by their octets, lists
    and tables by their members.
    """
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    if isinstance(wanted, int):
        return isinstance(given, int) and wanted == given
    if isinstance(wanted, float):
        return isinstance(given, float) and wanted == given
    if isinstance(wanted, (str, bytes, bytearray)):
        if not isinstance(given, (str, bytes, bytearray)):
            return False
        return _octets(wanted) == _octets(given)
    if isinstance(wanted, list):
        if not isinstance(given, list) or len(wanted) != len(given):
            return False
        for position in range(len(wanted)):
            if not header_equal(wanted[position], given[position]):
                return False
        return True
    if isinstance(wanted, dict):
        if not isinstance(given, dict) or len(wanted) != len(given):
            return False
        for name, value in wanted.items():
            if name not in given or not header_equal(value, given[name]):
                return False
        return True
    return wanted is None and given is None


def _octets(value: str | bytes | bytearray) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value)


@final
class HeaderRule:
    """One binding of a headers exchange.

    Attributes:
        destination: where it leads.
        match_any: whether one equal header is enough.
        wanted: name and value of each header; the value None asks for presence only.
    """

    def __init__(self, arguments: dict[str, Any], destination: Destination) -> None:
        mode: object = arguments.get(X_MATCH, "all")
        with_private = mode in ("all-with-x", "any-with-x")
        self.destination = destination
        self.match_any = mode in ("any", "any-with-x")
        self.wanted: list[tuple[str, object]] = [
            (name, value)
            for name, value in arguments.items()
            if name != X_MATCH and (with_private or not name.startswith(PRIVATE_PREFIX))
        ]

    def takes(self, headers: dict[str, Any]) -> bool:
        """Return whether the binding takes a message with these headers."""
        for name, value in self.wanted:
            equal = name in headers and (value is None or header_equal(value, headers[name]))
            if equal == self.match_any:
                return equal
        return not self.match_any


@final
class HeadersMatcher(Matcher):
    """A list of rules, in order of creation."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_headers = True
        self._rules: dict[BindingKey, HeaderRule] = {}

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        self._rules[binding_key(binding)] = HeaderRule(binding.arguments, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        del self._rules[binding_key(binding)]

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of all rules that a message's headers fit."""
        for rule in self._rules.values():
            if rule.takes(subject.headers):
                found[rule.destination] = None
