"""The expressions that filters are made of, evaluated over one message.

Truth has three values: True, False and None for "unknown", which is what comparing or computing
with something that is not there gives. Values of unlike types are compared with the result False,
whatever the operator; only numbers have an order (and texts, where a filter table asks for it).

Source: Jakarta Messaging 3.1, sections 3.8.1.1 and 3.8.1.2.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.filter.like_pattern import LikePattern
from headrace_broker.core.filter.message_view import MessageView
from headrace_broker.model.limits import LIKE_SHORT_BYTES

# What an expression can be, as far as its text says.
ANYTHING: Final = 0
CONDITION: Final = 1
NUMBER: Final = 2
TEXT: Final = 3
BOOLEAN: Final = 4

EQUAL: Final = 1
UNEQUAL: Final = 2
LESS: Final = 3
LESS_OR_EQUAL: Final = 4
GREATER: Final = 5
GREATER_OR_EQUAL: Final = 6

ADD: Final = 1
SUBTRACT: Final = 2
MULTIPLY: Final = 3
DIVIDE: Final = 4


class Expression:
    """A part of a filter."""

    def __init__(self, kind: i64) -> None:
        self.kind = kind  # of its value: ANYTHING, CONDITION, NUMBER, TEXT or BOOLEAN

    def evaluate(self, message: MessageView) -> object:
        """Return its value for a message: see `core.filter.message_view`."""
        raise AssertionError("abstract")


@final
class Literal(Expression):
    """A value that the filter says itself."""

    def __init__(self, value: object) -> None:
        super().__init__(_kind_of(value))
        self.value = value

    def evaluate(self, message: MessageView) -> object:
        """Return the value."""
        return self.value


@final
class Header(Expression):
    """The header of a name."""

    def __init__(self, name: bytes) -> None:
        super().__init__(ANYTHING)
        self._name = name

    def evaluate(self, message: MessageView) -> object:
        """Return the header's value."""
        return message.header(self._name)


@final
class Property(Expression):
    """A property, by its number in `core.filter.message_view`."""

    def __init__(self, field: i64) -> None:
        super().__init__(ANYTHING)
        self._field = field

    def evaluate(self, message: MessageView) -> object:
        """Return the property's value."""
        return message.property(self._field)


@final
class Every(Expression):
    """AND of all its parts; true without any."""

    def __init__(self, parts: list[Expression]) -> None:
        super().__init__(CONDITION)
        self._parts = parts

    def evaluate(self, message: MessageView) -> object:
        """Return False as soon as a part is, else unknown if one is."""
        result: object = True
        for part in self._parts:
            truth = part.evaluate(message)
            if truth is False:
                return False
            if truth is not True:
                result = None
        return result


@final
class Some(Expression):
    """OR of all its parts; false without any."""

    def __init__(self, parts: list[Expression]) -> None:
        super().__init__(CONDITION)
        self._parts = parts

    def evaluate(self, message: MessageView) -> object:
        """Return True as soon as a part is, else unknown if one is."""
        result: object = False
        for part in self._parts:
            truth = part.evaluate(message)
            if truth is True:
                return True
            if truth is not False:
                result = None
        return result


@final
class Not(Expression):
    """The opposite of a condition."""

    def __init__(self, part: Expression) -> None:
        super().__init__(CONDITION)
        self._part = part

    def evaluate(self, message: MessageView) -> object:
        """Return the opposite; unknown for unknown, and for values without truth."""
        truth = self._part.evaluate(message)
        if truth is True:
            return False
        return True if truth is False else None


@final
class Comparison(Expression):
    """Two values compared."""

    def __init__(
        self, operator: i64, left: Expression, right: Expression, texts_ordered: bool
    ) -> None:
        super().__init__(CONDITION)
        self._operator = operator  # EQUAL, UNEQUAL, LESS, LESS_OR_EQUAL, GREATER, ...
        self._left = left
        self._right = right
        self._texts_ordered = texts_ordered  # texts have an order, that of their bytes

    def evaluate(self, message: MessageView) -> object:
        """Return the comparison's truth."""
        return compare(
            self._operator,
            self._left.evaluate(message),
            self._right.evaluate(message),
            self._texts_ordered,
        )


def compare(operator: i64, left: object, right: object, texts_ordered: bool) -> object:
    """Return the truth of a comparison of two values."""
    if left is None or right is None:
        return None
    if isinstance(left, bool):
        return isinstance(right, bool) and _equality(operator, left == right)
    if isinstance(right, bool):
        return False
    if isinstance(left, (int, float)):
        return isinstance(right, (int, float)) and _order_numbers(operator, left, right)
    if isinstance(left, bytes) and isinstance(right, bytes):
        if not texts_ordered or operator <= UNEQUAL:
            return _equality(operator, left == right)
        if operator <= LESS_OR_EQUAL:
            return left < right or (operator == LESS_OR_EQUAL and left == right)
        return left > right or (operator == GREATER_OR_EQUAL and left == right)
    return False


def _equality(operator: i64, equal: bool) -> bool:
    if operator == EQUAL:
        return equal
    return operator == UNEQUAL and not equal


def _order_numbers(operator: i64, left: int | float, right: int | float) -> bool:
    if operator == EQUAL:
        return left == right
    if operator == UNEQUAL:
        return left != right
    if operator == LESS:
        return left < right
    if operator == LESS_OR_EQUAL:
        return left <= right
    if operator == GREATER:
        return left > right
    return left >= right


@final
class Arithmetic(Expression):
    """Two numbers computed; with anything else, and divided by zero, unknown."""

    def __init__(self, operator: i64, left: Expression, right: Expression) -> None:
        super().__init__(NUMBER)
        self._operator = operator
        self._left = left
        self._right = right

    def evaluate(self, message: MessageView) -> object:
        """Return the result; a quotient is never cut to an integer."""
        left = self._left.evaluate(message)
        right = self._right.evaluate(message)
        if isinstance(left, bool) or isinstance(right, bool):
            return None
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            return None
        try:
            if self._operator == ADD:
                return left + right
            if self._operator == SUBTRACT:
                return left - right
            if self._operator == MULTIPLY:
                return left * right
            return left / right
        except (ZeroDivisionError, OverflowError):
            return None


@final
class OneOf(Expression):
    """IN: a value that is one of some literals."""

    def __init__(self, subject: Expression, values: list[Literal]) -> None:
        super().__init__(CONDITION)
        self._subject = subject
        self._values = values

    def evaluate(self, message: MessageView) -> object:
        """Return whether the value equals one of the literals."""
        subject = self._subject.evaluate(message)
        if subject is None:
            return None
        for literal in self._values:
            if compare(EQUAL, subject, literal.value, False) is True:
                return True
        return False


@final
class Like(Expression):
    """LIKE: a text that fits a pattern; unknown for other values."""

    def __init__(self, subject: Expression, pattern: LikePattern) -> None:
        super().__init__(CONDITION)
        self._subject = subject
        self._pattern = pattern

    def evaluate(self, message: MessageView) -> object:
        """Return whether the text fits."""
        subject = self._subject.evaluate(message)
        if not isinstance(subject, bytes):
            return None
        if len(subject) <= LIKE_SHORT_BYTES:
            message.work += len(subject)
            return self._pattern.matches(subject.decode("utf-8", "surrogateescape"))
        long = message.long_text(subject)
        return long is not None and self._pattern.matches(long.text, long)


@final
class Missing(Expression):
    """IS NULL."""

    def __init__(self, subject: Expression) -> None:
        super().__init__(CONDITION)
        self._subject = subject

    def evaluate(self, message: MessageView) -> object:
        """Return whether the value is not there."""
        return self._subject.evaluate(message) is None


def _kind_of(value: object) -> i64:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    return TEXT if isinstance(value, bytes) else ANYTHING
