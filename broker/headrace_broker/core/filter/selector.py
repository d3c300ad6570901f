"""Filters, ready to be put to messages."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.filter.condition import Expression
from headrace_broker.core.filter.filter_table import table_condition
from headrace_broker.core.filter.message_view import MessageView
from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.core.filter.selector_parser import parse_selector


@final
class Filter:
    """Condition on the messages that a consumer wants."""

    def __init__(self, condition: Expression) -> None:
        self.work: i64 = 0  # steps of the last message beside one for each part, each 30 ns
        self._condition = condition
        self._view = MessageView()

    def matches(self, blob: bytes, start: i64) -> bool:
        """Return whether a message is wanted; its u32 length of properties is at `start`."""
        view = self._view
        wanted = view.show(blob, start) and self._condition.evaluate(view) is True
        view.leave()
        self.work = view.work
        return wanted


def make_filter(value: object) -> Filter:
    """Return the filter that `x-filter` says: a selector (str), or a table of conditions.

    Raises SelectorError: the text says which rule is broken, and where.
    """
    if isinstance(value, str):
        return Filter(parse_selector(value))
    if isinstance(value, dict):
        return Filter(table_condition(value))
    raise SelectorError(f"neither a selector nor a table, but a {type(value).__name__}")
