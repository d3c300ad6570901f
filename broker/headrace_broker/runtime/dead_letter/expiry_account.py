"""Accounts for what time does in the queues that are led here, and limits that were lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from typing_extensions import override

from headrace_broker.flow.account import Account, AccountOwner, Ledger
from headrace_broker.flow.charges import Charges
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import EXPIRY, Cause


@final
class _Waker(AccountOwner):
    def __init__(self, group: int, wake: Callable[[int], None]) -> None:
        self._group = group
        self._wake = wake

    @override
    def on_clear_funds(self) -> None:
        self._wake(self._group)


@final
class ExpiryAccounts:
    """One account for each queue: a queue whose dead letters cannot leave delays no other.

    Args:
        node: name of this node.
        ledger: its accounts.
        charges: knows the causes.
        new_cause: gives a number as sessions have it, by which other nodes tell what is owed there.
    """

    def __init__(
        self, node: str, ledger: Ledger, charges: Charges, new_cause: Callable[[], int]
    ) -> None:
        self.wake: Callable[[int], None] = _nothing
        self._node = node
        self._ledger = ledger
        self._charges = charges
        self._new_cause = new_cause
        self._accounts: dict[int, tuple[int, Account]] = {}  # by group: cause and account

    def cause(self, queue: Queue) -> int:
        """Return whom to charge for what time has done in a queue."""
        known = self._accounts.get(queue.group)
        if known is None:
            number = self._new_cause()
            cause = Cause(
                f"{self._node}/{EXPIRY}/{number:x}",
                EXPIRY,
                f"expiry in queue '{queue.name}'",
                self._node,
            )
            cause.vhost = queue.vhost
            account = self._ledger.open(cause, _Waker(queue.group, self._woken))
            self._charges.register(number, account)
            known = (number, account)
            self._accounts[queue.group] = known
        return known[0]

    def in_debt(self, group: int) -> bool:
        """Return whether a queue had better let nothing expire now."""
        known = self._accounts.get(group)
        return known is not None and known[1].in_debt

    def close(self, group: int) -> None:
        """A queue is led here no more."""
        known = self._accounts.pop(group, None)
        if known is not None:
            self._charges.end(known[0])
            self._ledger.close(known[1])

    def _woken(self, group: int) -> None:
        self.wake(group)


def _nothing(group: int) -> None:
    """Do nothing until the node has said what to do."""
