"""Which queues: regular expressions of names, each for one virtual host or for all."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click


class Selection:
    """Queues chosen on the command line.

    Args:
        patterns: each "EXPRESSION", or "VHOST=EXPRESSION" with a vhost that is meant; an expression
            is found anywhere in a name, as in policies. None chooses everything.
        vhost: where expressions without a vhost count; None for everywhere.

    Raises:
        click.BadParameter: one of them is no expression.
    """

    def __init__(self, patterns: Sequence[str], vhost: str | None) -> None:
        self._rules: list[tuple[str | None, re.Pattern[str]]] = []
        for each in patterns or ("",):
            place, sign, expression = each.partition("=")
            if not sign:
                place, expression = "", each
            try:
                compiled = re.compile(expression)
            except re.error as error:
                text = f"'{expression}' is no regular expression: {error}"
                raise click.BadParameter(text, param_hint="--queues") from None
            self._rules.append((place or vhost, compiled))

    def has(self, vhost: str, name: str) -> bool:
        """Return whether a queue was chosen."""
        return any(place in (None, vhost) and rule.search(name) for place, rule in self._rules)

    def described(self) -> list[str]:
        """Return it so that two that choose the same way are equal."""
        rules = [(place, rule.pattern) for place, rule in self._rules]
        return [pattern if place is None else f"{place}={pattern}" for place, pattern in rules]
