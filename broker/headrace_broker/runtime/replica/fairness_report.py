"""Ready messages of a queue by value of its fairness key, for people."""

from __future__ import annotations

from typing import Final

from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.state.fair_lanes import FairValue
from headrace_broker.model.flow_status import FairnessStatus
from headrace_broker.model.limits import FAIRNESS_SHOWN_MAX, FAIRNESS_VALUE_OCTETS_MAX

_TEXT: Final = b"S"
_INTEGER: Final = b"l"
_SHOWN_OCTETS_MAX: Final = 40  # of a value that is told apart by a digest


def fairness_rows(machine: QueueMachine) -> tuple[FairnessStatus, ...]:
    """Return what waits of up to FAIRNESS_SHOWN_MAX values, most first; nothing without a key."""
    return tuple(
        FairnessStatus(shown_value(each), int(each.waiting), int(each.octets))
        for each in machine.fairness(FAIRNESS_SHOWN_MAX)
    )


def shown_value(value: FairValue) -> str:
    """Say which value of the header it is, "" for messages without it."""
    octets = value.value
    if value.shared:
        return f"(shared lane {int.from_bytes(octets, 'big')})"
    if octets.startswith(_INTEGER):
        return str(int.from_bytes(octets[1:], "big", signed=True))
    cut = len(octets) == FAIRNESS_VALUE_OCTETS_MAX
    shown = octets[:_SHOWN_OCTETS_MAX] if cut else octets
    more = "..." if cut else ""
    if octets.startswith(_TEXT):
        return shown[1:].decode(errors="replace") + more
    return f"0x{shown.hex()}{more}" if octets else ""
