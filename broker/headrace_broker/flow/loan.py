"""One of several loans that an account has at one queue."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.flow.account import Account


@final
class Loan:
    """A part of an account's debt at a queue that is repaid apart from the rest."""

    def __init__(self, account: Account, group: int) -> None:
        self.account = account  # who owes
        self.group = group  # the queue's group
        self.messages: i64 = 0  # owed by this loan
        self.byte_count: i64 = 0  # likewise

    def borrow(self, messages: i64, byte_count: i64) -> None:
        """Owe more."""
        self.messages += messages
        self.byte_count += byte_count
        self.account.balance(self.group).borrow(messages, byte_count)

    def borrow_unbrought(self, messages: i64, byte_count: i64) -> None:
        """Add debt for messages that were not brought to the queue."""
        self.messages += messages
        self.byte_count += byte_count
        self.account.balance(self.group).borrow_unbrought(messages, byte_count)

    def repay(self, messages: i64, byte_count: i64) -> None:
        """Owe less."""
        assert messages <= self.messages, "repaid twice"
        assert byte_count <= self.byte_count, "repaid twice"
        self.messages -= messages
        self.byte_count -= byte_count
        self.account.balance(self.group).repay(messages, byte_count)

    def repay_all(self) -> None:
        """Owe nothing."""
        self.repay(self.messages, self.byte_count)

    def owe(self, messages: i64, byte_count: i64) -> None:
        """Owe so much from now on; what stays owed is not forgiven in between.

        It is what another node tells of its queues, dead letters and their sources alike.
        """
        self.borrow_unbrought(
            max(messages - self.messages, 0), max(byte_count - self.byte_count, 0)
        )
        self.repay(self.messages - messages, self.byte_count - byte_count)
