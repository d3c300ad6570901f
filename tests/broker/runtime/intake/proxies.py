"""Debts that are other nodes' sessions'."""

from __future__ import annotations

from headrace_broker.runtime.intake.remote_debt import RemoteDebts


def proxies(debts: RemoteDebts, group: int) -> list[tuple[int, int, int]]:
    """Return sessions of other nodes with the messages and bytes that they owe at a queue."""
    found = debts.charges.select(lambda charge: charge.home > 0 and charge.loan.group == group)
    return [(int(c.cause), int(c.loan.messages), int(c.loan.byte_count)) for c in found]
