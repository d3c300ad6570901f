"""Headers exchanges: bindings whose arguments a message's headers must equal.

Source: AMQP 0-9-1, section 3.1.3.4, with `all-with-x` and `any-with-x` of RabbitMQ.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, final

from mypy_extensions import i64

from headrace_broker.core.routing.matcher import Destination, Matcher, Subject
from headrace_broker.model.binding_key import BindingKey, binding_key
from headrace_broker.model.definition import Binding

X_MATCH: Final = "x-match"
HEADER_STEPS: Final = 4  # of `Subject.work` to look up one header of a message
PRIVATE_PREFIX: Final = "x-"  # such arguments are for the broker unless x-match says "-with-x"


def header_equal(wanted: object, given: object) -> bool:
    """Return whether a header has the value that a binding wants, by RabbitMQ 4's comparison.

    Integers are equal by value whatever their width, and so are floats; an integer, a float and a
    boolean are never equal to each other. Strings and byte arrays are equal by their bytes, lists
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
        return _data(wanted) == _data(given)
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


def _data(value: str | bytes | bytearray) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value)


# A header's name, the kind of its value and the value; None for one that is compared in full.
HeaderPlace: TypeAlias = tuple[str, str, object]

_PRESENT: Final = "present"
_NESTED: Final = "nested"
_NOWHERE: Final = Destination("")


def _place_of(name: str, value: object) -> HeaderPlace:
    """Return the place of a header: values that `header_equal` finds equal have the same."""
    if value is None:
        return (name, _PRESENT, None)
    if isinstance(value, bool):
        return (name, "boolean", value)
    if isinstance(value, int):
        return (name, "integer", value)
    if isinstance(value, float):
        return (name, "float", value)
    if isinstance(value, (str, bytes, bytearray)):
        return (name, "bytes", _data(value))
    return (name, _NESTED, None)


def _size_of(value: object) -> int:
    """Return how many values `header_equal` may look at."""
    count = 1
    if isinstance(value, list):
        for each in value:
            count += _size_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            count += _size_of(each)
    return count


@final
class HeaderRule:
    """One binding of a headers exchange."""

    def __init__(self, arguments: dict[str, Any], destination: Destination) -> None:
        mode: object = arguments.get(X_MATCH, "all")
        with_private = mode in ("all-with-x", "any-with-x")
        self.destination = destination  # where it leads
        self.match_any = mode in ("any", "any-with-x")  # whether one equal header is enough
        # name and value of each header; the value None asks for presence only
        self.wanted: list[tuple[str, object]] = [
            (name, value)
            for name, value in arguments.items()
            if name != X_MATCH and (with_private or not name.startswith(PRIVATE_PREFIX))
        ]
        self.size: i64 = 1  # values a comparison may look at, nested ones among them
        for _, value in self.wanted:
            self.size += _size_of(value)

    @property
    def places(self) -> list[HeaderPlace]:
        """Index keys of a binding: one of its headers, or any if one is enough."""
        found = [_place_of(name, value) for name, value in self.wanted]
        return found if self.match_any else found[:1]

    def takes(self, headers: dict[str, Any]) -> bool:
        """Return whether the binding takes a message with these headers."""
        for name, value in self.wanted:
            equal = name in headers and (value is None or header_equal(value, headers[name]))
            if equal == self.match_any:
                return equal
        return not self.match_any


@final
class HeadersMatcher(Matcher):
    """Rules by a header that a message must have for them.

    A message is compared with the rules that one of its headers leads to, and with none whose
    destination is found already: at most with `load` values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads_headers = True
        self._rules: dict[BindingKey, HeaderRule] = {}
        self._by_place: dict[HeaderPlace, dict[HeaderRule, None]] = {}
        self._always: dict[HeaderRule, None] = {}  # they want nothing

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        rule = HeaderRule(binding.arguments, destination)
        self._rules[binding_key(binding)] = rule
        self.load += rule.size
        for place in rule.places:
            self._by_place.setdefault(place, {})[rule] = None
        if not rule.wanted and not rule.match_any:
            self._always[rule] = None

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding."""
        rule = self._rules.pop(binding_key(binding))
        self.load -= rule.size
        for place in rule.places:
            rules = self._by_place[place]
            del rules[rule]
            if not rules:
                del self._by_place[place]
        self._always.pop(rule, None)

    def load_of(self, binding: Binding) -> int:
        """Return the values that a binding wants, and one."""
        return int(HeaderRule(binding.arguments, _NOWHERE).size)

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of all rules that a message's headers fit."""
        for rule in self._always:
            found[rule.destination] = None
        subject.work += len(self._always)
        for name, value in subject.headers.items():
            if subject.is_spent(found):
                return
            place = _place_of(name, value)
            self._compare(place, subject, found)
            if place[1] != _PRESENT:
                self._compare((name, _PRESENT, None), subject, found)

    def _compare(
        self, place: HeaderPlace, subject: Subject, found: dict[Destination, None]
    ) -> None:
        subject.work += HEADER_STEPS
        rules = self._by_place.get(place)
        if rules is None:
            return
        for rule in rules:
            subject.work += 1
            if rule.destination not in found:
                if subject.is_spent(found):
                    return
                subject.work += rule.size
                if rule.takes(subject.headers):
                    found[rule.destination] = None
