"""Options of sources and sinks: texts by name, letter case ignored, as Spark gives them.

A reader takes what it knows and calls `done`, which refuses what nobody has taken: a misspelt
option is an error and not a default.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from headrace_pipeline.error import OptionError

_TRUE: Final = {"true": True, "false": False}

# What Spark itself adds to, or keeps in, the options of a source or sink.
_SPARK_OWN: Final = frozenset({"path", "checkpointlocation", "querypath", "queryname"})


class Options:
    """Options that are taken one by one.

    Args:
        given: as Spark has them.
    """

    def __init__(self, given: Mapping[str, str], who: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._who = who  # of whom, such as "headrace_log", for messages
        self._known: dict[str, str] = {}

    def text(self, name: str, default: str | None = None) -> str:
        """Take a text; one without default must be given, and not be empty.

        Raises:
            OptionError: it is not.
        """
        value = self._take(name)
        if value is None:
            if default is None:
                raise OptionError(name, f"{self._who} needs it")
            return default
        if not value and default != "":
            raise OptionError(name, "must not be empty")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Take one of some texts, letter case ignored.

        Raises:
            OptionError: it is none of them.
        """
        value = self.text(name, default)
        for each in choices:
            if each.lower() == value.lower():
                return each
        raise OptionError(name, f"must be one of {', '.join(choices)}, not {value!r}")

    def flag(self, name: str, default: bool) -> bool:
        """Take `true` or `false`.

        Raises:
            OptionError: it is neither.
        """
        value = self._take(name)
        if value is None:
            return default
        if value.lower() not in _TRUE:
            raise OptionError(name, f"must be true or false, not {value!r}")
        return _TRUE[value.lower()]

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Take a whole number.

        Raises:
            OptionError: it is none, or not `least` to `most`.
        """
        value = self._take(name)
        if value is None:
            return default
        text = value.strip()
        number = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
        if number is None or not least <= number <= most:
            raise OptionError(name, f"must be a whole number, {least} to {most}, not {value!r}")
        return number

    def refuse(self, name: str, rule: str) -> None:
        """Refuse an option that people might think of, and say what to do instead.

        Raises:
            OptionError: it is given.
        """
        if name.lower() in self._given:
            raise OptionError(name, rule)

    def done(self) -> None:
        """Refuse unused options.

        Raises:
            OptionError: there is something.
        """
        for name in self._given:
            if name not in self._known and name not in _SPARK_OWN:
                near = difflib.get_close_matches(name, self._known, 1)
                hint = f"; is {self._known[near[0]]} meant?" if near else ""
                raise OptionError(name, f"{self._who} knows no such option{hint}")

    def _take(self, name: str) -> str | None:
        self._known[name.lower()] = name
        return self._given.get(name.lower())
