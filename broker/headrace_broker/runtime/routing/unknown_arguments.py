"""Arguments that clients give and this broker does not know: taken, and told in the log once."""

from __future__ import annotations

import logging
from typing import Final, final

from headrace_broker.catalog.setting import SHOWN_LETTERS_MAX
from headrace_broker.model.limits import UNKNOWN_ARGUMENTS_TOLD_MAX

_LOG: Final = logging.getLogger("headrace.queue")


@final
class UnknownArguments:
    """Reported unknown arguments, up to UNKNOWN_ARGUMENTS_TOLD_MAX names."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], None] = {}
        self._full = False

    def warn(self, kind: str, where: str, names: list[str]) -> None:
        """Tell of unknown arguments, each once for a "queue", an "exchange" or a "consumer"."""
        for name in names:
            key = kind, name[:SHOWN_LETTERS_MAX]
            if key in self._told or self._full:
                continue
            if len(self._told) >= UNKNOWN_ARGUMENTS_TOLD_MAX:
                self._full = True
                _LOG.warning(
                    "more than %d unknown arguments: further ones are not told here; queues and"
                    " exchanges list them as unknown_arguments in the HTTP API",
                    UNKNOWN_ARGUMENTS_TOLD_MAX,
                )
                return
            self._told[key] = None
            _LOG.warning(
                "%s has the argument %r, which means nothing here: it is kept and has no effect"
                " (told once for this name)",
                where,
                key[1],
            )


UNKNOWN_ARGUMENTS: Final = UnknownArguments()  # of this process, which is one node
