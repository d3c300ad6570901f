"""Ready messages of a queue by value of its fairness key, for people."""

from __future__ import annotations

from typing import Final

from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.state.fair_lanes import FairValue
from headrace_broker.model.flow_status import FairnessStatus
from headrace_broker.model.limits import FAIRNESS_SHOWN_MAX, FAIRNESS_VALUE_BYTES_MAX

_TEXT: Final = b"S"
_INTEGER: Final = b"l"
_SHOWN_BYTES_MAX: Final = 40  # of a value that is told apart by a digest


def fairness_rows(machine: QueueMachine) -> tuple[FairnessStatus, ...]:
    """Return what waits of up to FAIRNESS_SHOWN_MAX values, most first; nothing without a key."""
    return tuple(
        FairnessStatus(shown_value(each), int(each.waiting), int(each.byte_count))
        for each in machine.fairness(FAIRNESS_SHOWN_MAX)
    )


def shown_value(value: FairValue) -> str:
    """Say which value of the header it is, "" for messages without it."""
    data = value.value
    if value.shared:
        return f"(shared lane {int.from_bytes(data, 'big')})"
    if data.startswith(_INTEGER):
        return str(int.from_bytes(data[1:], "big", signed=True))
    cut = len(data) == FAIRNESS_VALUE_BYTES_MAX
    shown = data[:_SHOWN_BYTES_MAX] if cut else data
    more = "..." if cut else ""
    if data.startswith(_TEXT):
        return shown[1:].decode(errors="replace") + more
    return f"0x{shown.hex()}{more}" if data else ""
