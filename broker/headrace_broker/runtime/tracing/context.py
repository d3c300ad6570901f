"""The W3C trace context in the headers of a message.

Source: https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headrace_broker.core.property_reader import PropertyReader, header_key

PARENT: Final = b"traceparent"
STATE: Final = b"tracestate"
RATIO_BITS: Final = 56  # of a trace id, the last ones: those that are random by level 2

# A version that is not known may have more behind the flags.
_PARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?"
)
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """Headers as they stand in a message."""

    parent: str  # the header `traceparent`, well formed
    state: str = ""  # the header `tracestate`, "" without one


def sampling_bound(ratio: float) -> int:
    """Return the bound below which the last bits of a trace id are, for a share of all traces."""
    return round(ratio * (1 << RATIO_BITS))


class ContextReader:
    """Finds the contexts of messages to trace; `ratio`, 0 to 1, goes by the trace's id."""

    def __init__(self, ratio: float) -> None:
        self._bound = sampling_bound(ratio)
        self._reader = PropertyReader()

    def read(self, properties: bytes) -> TraceContext | None:
        """Return the context in a property block, None where there is none that is sampled."""
        if PARENT not in properties:
            return None
        reader = self._reader
        if not reader.scan_block(properties, 0, len(properties)):
            return None
        start, stop = reader.headers_start, reader.headers_stop
        parent = _text(header_key(properties, start, stop, PARENT))
        found = _PARENT.fullmatch(parent)
        if found is None or not int(found[2], 16) & _SAMPLED:
            return None
        if int(found[1], 16) & ((1 << RATIO_BITS) - 1) >= self._bound:
            return None
        state = _text(header_key(properties, start, stop, STATE))
        return TraceContext(parent.decode("ascii"), state.decode("ascii", "ignore"))


def _text(key: bytes | None) -> bytes:
    """Return the bytes of a string, b"" for another value or none."""
    return key[1:] if key is not None and key[:1] == b"S" else b""
