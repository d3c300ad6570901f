"""Accounts: whatever enters the broker owes for all that it causes, until that is done.

Source: Tony Garnock-Jones, "Internal flow control within message brokers" (Syndicate).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, NamedTuple, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.activity import StopCounter
from headrace_broker.flow.brought import BroughtRecord
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import Cause
from headrace_broker.model.limits import ACCOUNTS_LEAVING_MAX, BALANCE_EXCHANGES_MAX

RECENT_S: Final = 10.0  # seconds over which rates of tabs fade
RATE_MIN: Final = 0.01  # per second; less counts as nothing


class Moved(NamedTuple):
    """Changes of a balance since the last query."""

    messages: int  # handed over
    byte_count: int  # likewise
    repaid_messages: int  # done or dropped
    repaid_bytes: int  # likewise
    exchanges: dict[str, int]  # messages by the exchange that they came through, where it is known
    owed_messages: int  # now
    owed_bytes: int  # likewise


@mypyc_attr(allow_interpreted_subclasses=True)
class AccountOwner:
    """Owner of an account, stopped while it is in debt: a socket's reader, for instance."""

    @abstractmethod
    def on_clear_funds(self) -> None:
        """Resume: the account is down at its low mark. Must not block."""


@final
class AccountBalance:
    """Debt of an account at one queue.

    Loans are counted, not kept one by one: who borrows remembers how much, and repays that once.
    """

    def __init__(self, account: Account, group: int) -> None:
        self.account = account  # who owes
        self.group = group  # the queue's group
        self.messages: i64 = 0  # owed
        self.byte_count: i64 = 0  # owed
        self.message_rate = 0.0  # handed over per second, over some RECENT_S, at the last `sample`
        self.byte_rate = 0.0  # the same in bytes
        self.exchanges: dict[str, float] = {}  # messages per second by exchange, likewise
        self._new_messages: i64 = 0  # since the last sample
        self._new_bytes: i64 = 0
        self._new_by_exchange: dict[str, int] = {}
        self._unbrought_messages: i64 = 0  # of what is new
        self._unbrought_bytes: i64 = 0
        self._untold_messages: i64 = 0  # since `take`, but for what is new since the last sample
        self._untold_bytes: i64 = 0
        self._untold_by_exchange: dict[str, int] = {}
        self._told_messages: i64 = 0  # owed when that was called
        self._told_bytes: i64 = 0

    def borrow(self, messages: i64, byte_count: i64) -> None:
        """Take a loan for work that was handed to the queue."""
        self.messages += messages
        self.byte_count += byte_count
        self._new_messages += messages
        self._new_bytes += byte_count
        self.account.borrow(messages, byte_count)

    def borrow_unbrought(self, messages: i64, byte_count: i64) -> None:
        """Take a loan for what the account did not bring: what dies there, or waits elsewhere."""
        self.borrow(messages, byte_count)
        self._unbrought_messages += messages
        self._unbrought_bytes += byte_count

    def came_through(self, exchange: str, messages: i64) -> None:
        """Note the exchange of messages that are handed to the queue."""
        new = self._new_by_exchange
        known = new.get(exchange)
        if known is not None:
            new[exchange] = known + int(messages)
        elif len(new) < BALANCE_EXCHANGES_MAX:
            new[exchange] = int(messages)

    def repay(self, messages: i64, byte_count: i64) -> None:
        """The work is done, or was dropped."""
        assert messages <= self.messages, "repaid twice"
        assert byte_count <= self.byte_count, "repaid twice"
        self.messages -= messages
        self.byte_count -= byte_count
        self.account.repay(messages, byte_count)

    def repay_all(self) -> None:
        """All of it is done or was dropped: the queue is gone."""
        self.repay(self.messages, self.byte_count)

    def sample(self, elapsed_s: float) -> None:
        """Bring the rates up to date; called about once a second."""
        if self._new_messages == 0 and self.message_rate == 0.0 and self.byte_rate == 0.0:
            return
        weight = min(elapsed_s / RECENT_S, 1.0)
        new = weight / elapsed_s
        self.message_rate += int(self._new_messages) * new - self.message_rate * weight
        self.byte_rate += int(self._new_bytes) * new - self.byte_rate * weight
        self._untold_messages += self._new_messages
        self._untold_bytes += self._new_bytes
        self._new_messages = self._unbrought_messages = 0
        self._new_bytes = self._unbrought_bytes = 0
        if self.message_rate < RATE_MIN and self.byte_rate < RATE_MIN:
            self.message_rate = self.byte_rate = 0.0
        self._sample_exchanges(new, weight)

    def note(self) -> None:
        """Record hand-overs since the last sample; called right before it or the end."""
        record = self.account.brought
        messages = self._new_messages - self._unbrought_messages
        byte_count = self._new_bytes - self._unbrought_bytes
        if record is not None and messages > 0:
            record.note(self.account.cause, self.group, int(messages), int(byte_count))

    def _sample_exchanges(self, new: float, weight: float) -> None:
        rates: dict[str, float] = {}
        for exchange, count in self._new_by_exchange.items():
            before = self.exchanges.get(exchange, 0.0)
            rate = before + count * new - before * weight
            if rate >= RATE_MIN:
                rates[exchange] = rate
            if count > 0:
                self._leave_untold(exchange, count)
        self.exchanges = rates
        self._new_by_exchange = dict.fromkeys(rates, 0)

    def _leave_untold(self, exchange: str, count: int) -> None:
        untold = self._untold_by_exchange
        if exchange in untold or len(untold) < BALANCE_EXCHANGES_MAX:
            untold[exchange] = untold.get(exchange, 0) + count

    def take(self) -> Moved:
        """Return what happened since the last call; there may be one who calls it."""
        messages = self._untold_messages + self._new_messages
        byte_count = self._untold_bytes + self._new_bytes
        exchanges = self._untold_by_exchange
        self._untold_by_exchange = {}
        for exchange, count in self._new_by_exchange.items():
            if count > 0:
                exchanges[exchange] = exchanges.get(exchange, 0) + count
                self._untold_by_exchange[exchange] = -count
        repaid_messages = self._told_messages + messages - self.messages
        repaid_bytes = self._told_bytes + byte_count - self.byte_count
        self._untold_messages = -self._new_messages  # the next sample counts these again
        self._untold_bytes = -self._new_bytes
        self._told_messages = self.messages
        self._told_bytes = self.byte_count
        kept = {exchange: count for exchange, count in exchanges.items() if count > 0}
        repaid = int(repaid_messages), int(repaid_bytes)
        owed = int(self.messages), int(self.byte_count)
        return Moved(int(messages), int(byte_count), *repaid, kept, *owed)


@final
class Account:
    """The debt of one activity, and its owner, who waits until it is repaid."""

    def __init__(self, cause: Cause, limits: FlowLimits, owner: AccountOwner | None = None) -> None:
        self.cause = cause  # whose it is
        self.weight: i64 = 1  # its share among those that compete, 1 or more
        self.messages: i64 = 0  # owed
        self.byte_count: i64 = 0  # owed
        self.in_debt = False  # it owes more than its limit, and was not at the low mark since
        self.owner = owner  # told when it is; None for an activity that is stopped in another way
        self.balances: dict[int, AccountBalance] = {}  # what it owes by queue, or did lately
        self.brought: BroughtRecord | None = None  # records what it hands over
        self.limits = limits  # those in force

    def balance(self, group: int) -> AccountBalance:
        """Return the account's balance at a queue."""
        balance = self.balances.get(group)
        if balance is None:
            balance = AccountBalance(self, group)
            self.balances[group] = balance
        return balance

    def close_balance(self, group: int) -> None:
        """Forget a queue at which nothing is owed; otherwise it stays."""
        balance = self.balances.get(group)
        if balance is not None and balance.messages == 0:
            balance.note()
            del self.balances[group]

    def borrow(self, messages: i64, byte_count: i64) -> None:
        """Owe more."""
        self.messages += messages
        self.byte_count += byte_count
        if not self.in_debt:
            self._judge()

    def repay(self, messages: i64, byte_count: i64) -> None:
        """Reduce the debt, and resume the owner at the low mark."""
        self.messages -= messages
        self.byte_count -= byte_count
        if self.in_debt:
            self.poll()

    def _judge(self) -> None:
        limits = self.limits
        self.in_debt = self.messages > limits.scaled(
            limits.account_messages
        ) or self.byte_count > limits.scaled(limits.account_bytes)

    def poll(self) -> None:
        """Resume the owner if the debt allows it; also called when limits have changed.

        A limit that was lowered below the debt stops the owner's next publish.
        """
        if not self.in_debt:
            self._judge()
            return
        limits = self.limits
        if (
            self.messages <= limits.scaled(limits.account_messages) // 2
            and self.byte_count <= limits.scaled(limits.account_bytes) // 2
        ):
            self.in_debt = False
            if self.owner is not None:
                self.owner.on_clear_funds()


@final
class Ledger:
    """All accounts of a node."""

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits  # those in force
        self.accounts: dict[str, Account] = {}  # by `Cause.account`; closed ones until they repaid
        self.dropped_messages: i64 = 0  # publishes held in vain when their channel ended
        self.stops = StopCounter()  # for how long connections were stopped, by limit
        self.brought = BroughtRecord()  # by accounts to queues, those gone too
        self.leaving: list[Account] | None = None  # closed ones until somebody has looked
        self._closed: set[str] = set()

    def open(self, cause: Cause, owner: AccountOwner | None = None) -> Account:
        """Open an account; its name must not be in use."""
        assert cause.account not in self.accounts, cause.account
        account = Account(cause, self.limits, owner)
        account.brought = self.brought
        self.accounts[cause.account] = account
        return account

    def close(self, account: Account) -> None:
        """Note that the activity has ended; its work may still be under way."""
        account.owner = None
        if account.messages == 0:
            self._forget(account)
        else:
            self._closed.add(account.cause.account)

    def is_open(self, name: str) -> bool:
        """Return whether an account is there that was not closed."""
        return name in self.accounts and name not in self._closed

    def sweep(self) -> None:
        """Drop closed accounts without debt; called now and then."""
        for name in list(self._closed):
            account = self.accounts[name]
            if account.messages == 0:
                self._forget(account)
                self._closed.discard(name)

    def _forget(self, account: Account) -> None:
        del self.accounts[account.cause.account]
        for balance in account.balances.values():
            balance.note()
        account.brought = None  # tabs that are closed later have nothing new to note
        leaving = self.leaving
        if leaving is not None and account.balances and len(leaving) < ACCOUNTS_LEAVING_MAX:
            leaving.append(account)

    def poll(self) -> None:
        """Make every account compare its debt with limits that have changed."""
        for account in list(self.accounts.values()):
            account.poll()

    def sample(self, elapsed_s: float) -> None:
        """Update the rates of all tabs after so many seconds, more than 0, and forget idle ones."""
        self.brought.now_s += elapsed_s
        for account in self.accounts.values():
            for balance in list(account.balances.values()):
                balance.note()
                balance.sample(elapsed_s)
                if balance.message_rate == 0.0 and balance.byte_rate == 0.0:
                    account.close_balance(balance.group)
