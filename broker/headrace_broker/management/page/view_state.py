"""Content of a view of the page, and its changes since the last query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

GONE_MAX: Final = 1000  # keys remembered as gone; who has not looked since gets all again


class Change(NamedTuple):
    """Changes for one page.

    Attributes:
        version: of the board, for the next time.
        whole: this is all there is; what was known before is to be forgotten.
        put: values by key, as JSON.
        gone: keys that are no more.
    """

    version: int
    whole: bool
    put: dict[str, msgspec.Raw]
    gone: list[str]

    def is_empty(self) -> bool:
        """Return whether there is nothing to tell."""
        return not (self.whole or self.put or self.gone)


class ViewState:
    """Values by key, each with the version at which it changed last.

    Nothing is kept for those who look: one that looks seldom gets more at a time.
    """

    def __init__(self) -> None:
        self.version = 0
        self._values: dict[str, tuple[bytes, int]] = {}
        self._gone: dict[str, int] = {}
        self._complete_since = 0  # version from which on all that went is remembered

    def update(self, values: Mapping[str, Any]) -> None:
        """Replace the content."""
        self.version += 1
        for key in [key for key in self._values if key not in values]:
            del self._values[key]
            self._gone.pop(key, None)
            self._gone[key] = self.version
        for key, value in values.items():
            encoded = msgspec.json.encode(value)
            known = self._values.get(key)
            if known is None or known[0] != encoded:
                self._values[key] = (encoded, self.version)
                self._gone.pop(key, None)
        while len(self._gone) > GONE_MAX:
            key = next(iter(self._gone))
            self._complete_since = self._gone.pop(key)

    def since(self, version: int) -> Change:
        """Return changes since a version; 0 for everything."""
        whole = version == 0 or version < self._complete_since
        put = {
            key: msgspec.Raw(value)
            for key, (value, changed) in self._values.items()
            if whole or changed > version
        }
        gone = [] if whole else [key for key, changed in self._gone.items() if changed > version]
        return Change(self.version, whole, put, gone)
