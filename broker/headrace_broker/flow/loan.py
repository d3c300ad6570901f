"""One of several loans that an account has at one queue."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.account import Account


@final
class Loan:
    """A part of an account's debt at a queue that is repaid apart from the others.

    Attributes:
        account: who owes.
        group: the queue's group.
        messages: owed by this loan.
        octets: likewise.
    """

    def __init__(self, account: Account, group: int) -> None:
        self.account = account
        self.group = group
        self.messages: i64 = 0
        self.octets: i64 = 0

    def borrow(self, messages: i64, octets: i64) -> None:
        """Owe more."""
        self.messages += messages
        self.octets += octets
        self.account.tab(self.group).borrow(messages, octets)

    def borrow_unbrought(self, messages: i64, octets: i64) -> None:
        """Add debt for messages that were not brought to the queue."""
        self.messages += messages
        self.octets += octets
        self.account.tab(self.group).borrow_unbrought(messages, octets)

    def repay(self, messages: i64, octets: i64) -> None:
        """Owe less."""
        assert messages <= self.messages, "repaid twice"
        assert octets <= self.octets, "repaid twice"
        self.messages -= messages
        self.octets -= octets
        self.account.tab(self.group).repay(messages, octets)

    def repay_all(self) -> None:
        """Owe nothing."""
        self.repay(self.messages, self.octets)

    def owe(self, messages: i64, octets: i64) -> None:
        """Owe so much from now on; what stays owed is not forgiven in between.

        It is what another node tells of its queues, dead letters and their sources alike.
        """
        self.borrow_unbrought(max(messages - self.messages, 0), max(octets - self.octets, 0))
        self.repay(self.messages - messages, self.octets - octets)
