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
from headrace_broker.model.limits import ACCOUNTS_LEAVING_MAX, TAB_EXCHANGES_MAX

RECENT_S: Final = 10.0  # seconds over which rates of tabs fade
RATE_MIN: Final = 0.01  # per second; less counts as nothing


class Moved(NamedTuple):
    """Changes of a balance since the last query.

    Attributes:
        messages: handed over.
        octets: likewise.
        repaid_messages: done or dropped.
        repaid_octets: likewise.
        exchanges: messages by the exchange that they came through, where it is known.
    """

    messages: int
    octets: int
    repaid_messages: int
    repaid_octets: int
    exchanges: dict[str, int]


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

    Attributes:
        account: who owes.
        group: the queue's group.
        messages: owed.
        octets: owed.
        message_rate: handed over per second, in about the last RECENT_S; as of the last `sample`.
        octet_rate: the same in octets.
        exchanges: messages per second by the exchange that they came through, likewise.
    """

    def __init__(self, account: Account, group: int) -> None:
        self.account = account
        self.group = group
        self.messages: i64 = 0
        self.octets: i64 = 0
        self.message_rate = 0.0
        self.octet_rate = 0.0
        self.exchanges: dict[str, float] = {}
        self._new_messages: i64 = 0  # since the last sample
        self._new_octets: i64 = 0
        self._new_by_exchange: dict[str, int] = {}
        self._unbrought_messages: i64 = 0  # of what is new
        self._unbrought_octets: i64 = 0
        self._untold_messages: i64 = 0  # since `take`, but for what is new since the last sample
        self._untold_octets: i64 = 0
        self._untold_by_exchange: dict[str, int] = {}
        self._told_messages: i64 = 0  # owed when that was called
        self._told_octets: i64 = 0

    def borrow(self, messages: i64, octets: i64) -> None:
        """Take a loan for work that was handed to the queue."""
        self.messages += messages
        self.octets += octets
        self._new_messages += messages
        self._new_octets += octets
        self.account.borrow(messages, octets)

    def borrow_unbrought(self, messages: i64, octets: i64) -> None:
        """Take a loan for what the account did not bring: what dies there, or waits elsewhere."""
        self.borrow(messages, octets)
        self._unbrought_messages += messages
        self._unbrought_octets += octets

    def came_through(self, exchange: str, messages: i64) -> None:
        """Note the exchange of messages that are handed to the queue."""
        new = self._new_by_exchange
        known = new.get(exchange)
        if known is not None:
            new[exchange] = known + int(messages)
        elif len(new) < TAB_EXCHANGES_MAX:
            new[exchange] = int(messages)

    def repay(self, messages: i64, octets: i64) -> None:
        """The work is done, or was dropped."""
        assert messages <= self.messages, "repaid twice"
        assert octets <= self.octets, "repaid twice"
        self.messages -= messages
        self.octets -= octets
        self.account.repay(messages, octets)

    def repay_all(self) -> None:
        """All of it is done or was dropped: the queue is gone."""
        self.repay(self.messages, self.octets)

    def sample(self, elapsed_s: float) -> None:
        """Bring the rates up to date; called about once a second."""
        if self._new_messages == 0 and self.message_rate == 0.0 and self.octet_rate == 0.0:
            return
        weight = min(elapsed_s / RECENT_S, 1.0)
        new = weight / elapsed_s
        self.message_rate += int(self._new_messages) * new - self.message_rate * weight
        self.octet_rate += int(self._new_octets) * new - self.octet_rate * weight
        self._untold_messages += self._new_messages
        self._untold_octets += self._new_octets
        self._new_messages = self._unbrought_messages = 0
        self._new_octets = self._unbrought_octets = 0
        if self.message_rate < RATE_MIN and self.octet_rate < RATE_MIN:
            self.message_rate = self.octet_rate = 0.0
        self._sample_exchanges(new, weight)

    def note(self) -> None:
        """Record hand-overs since the last sample; called right before it or the end."""
        record = self.account.brought
        messages = self._new_messages - self._unbrought_messages
        octets = self._new_octets - self._unbrought_octets
        if record is not None and messages > 0:
            record.note(self.account.cause, self.group, int(messages), int(octets))

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
        if exchange in untold or len(untold) < TAB_EXCHANGES_MAX:
            untold[exchange] = untold.get(exchange, 0) + count

    def take(self) -> Moved:
        """Return what happened since the last call; there may be one who calls it."""
        messages = self._untold_messages + self._new_messages
        octets = self._untold_octets + self._new_octets
        exchanges = self._untold_by_exchange
        self._untold_by_exchange = {}
        for exchange, count in self._new_by_exchange.items():
            if count > 0:
                exchanges[exchange] = exchanges.get(exchange, 0) + count
                self._untold_by_exchange[exchange] = -count
        repaid_messages = self._told_messages + messages - self.messages
        repaid_octets = self._told_octets + octets - self.octets
        self._untold_messages = -self._new_messages  # the next sample counts these again
        self._untold_octets = -self._new_octets
        self._told_messages = self.messages
        self._told_octets = self.octets
        kept = {exchange: count for exchange, count in exchanges.items() if count > 0}
        return Moved(int(messages), int(octets), int(repaid_messages), int(repaid_octets), kept)


@final
class Account:
    """The debt of one activity, and its owner, who waits until it is repaid.

    Attributes:
        cause: whose it is.
        weight: its share among those that compete, 1 or more.
        messages: owed.
        octets: owed.
        in_debt: it owes more than its limit, and has not been down at the low mark since.
        debtor: told when it is; None for an activity that is stopped in another way.
        tabs: what it owes by queue, at those where it owes something or did lately.
        limits: those in force.
        brought: where what it hands over is recorded, None for nowhere.
    """

    def __init__(
        self, cause: Cause, limits: FlowLimits, debtor: AccountOwner | None = None
    ) -> None:
        self.cause = cause
        self.weight: i64 = 1
        self.messages: i64 = 0
        self.octets: i64 = 0
        self.in_debt = False
        self.debtor = debtor
        self.tabs: dict[int, AccountBalance] = {}
        self.brought: BroughtRecord | None = None
        self.limits = limits

    def tab(self, group: int) -> AccountBalance:
        """Return the account's balance at a queue."""
        tab = self.tabs.get(group)
        if tab is None:
            tab = AccountBalance(self, group)
            self.tabs[group] = tab
        return tab

    def close_tab(self, group: int) -> None:
        """Forget a queue at which nothing is owed; otherwise it stays."""
        tab = self.tabs.get(group)
        if tab is not None and tab.messages == 0:
            tab.note()
            del self.tabs[group]

    def borrow(self, messages: i64, octets: i64) -> None:
        """Owe more."""
        self.messages += messages
        self.octets += octets
        if not self.in_debt:
            self._judge()

    def repay(self, messages: i64, octets: i64) -> None:
        """Reduce the debt, and resume the owner at the low mark."""
        self.messages -= messages
        self.octets -= octets
        if self.in_debt:
            self.look()

    def _judge(self) -> None:
        limits = self.limits
        self.in_debt = self.messages > limits.scaled(
            limits.account_messages
        ) or self.octets > limits.scaled(limits.account_octets)

    def look(self) -> None:
        """Resume the owner if the debt allows it; also called when limits have changed.

        A limit that was lowered below the debt stops the debtor's next publish.
        """
        if not self.in_debt:
            self._judge()
            return
        limits = self.limits
        if (
            self.messages <= limits.scaled(limits.account_messages) // 2
            and self.octets <= limits.scaled(limits.account_octets) // 2
        ):
            self.in_debt = False
            if self.debtor is not None:
                self.debtor.on_clear_funds()


@final
class Ledger:
    """All accounts of a node.

    Attributes:
        accounts: by `Cause.account`; those that were closed stay until they owe nothing.
        limits: those in force.
        dropped_messages: publishes that were held and had nowhere to go when their channel ended.
        dropped_octets: the same in octets.
        stops: for how long connections were stopped, by limit.
        brought: what accounts have brought to queues, those that are gone too.
        leaving: accounts that were closed and forgotten, until somebody has looked; None where
            nobody does.
    """

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.accounts: dict[str, Account] = {}
        self.dropped_messages: i64 = 0
        self.dropped_octets: i64 = 0
        self.stops = StopCounter()
        self.brought = BroughtRecord()
        self.leaving: list[Account] | None = None
        self._closed: set[str] = set()

    def open(self, cause: Cause, debtor: AccountOwner | None = None) -> Account:
        """Open an account; its name must not be in use."""
        assert cause.account not in self.accounts, cause.account
        account = Account(cause, self.limits, debtor)
        account.brought = self.brought
        self.accounts[cause.account] = account
        return account

    def close(self, account: Account) -> None:
        """Note that the activity has ended; its work may still be under way."""
        account.debtor = None
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
        for tab in account.tabs.values():
            tab.note()
        account.brought = None  # tabs that are closed later have nothing new to note
        leaving = self.leaving
        if leaving is not None and account.tabs and len(leaving) < ACCOUNTS_LEAVING_MAX:
            leaving.append(account)

    def look(self) -> None:
        """Have every account compare its debt with limits that have changed."""
        for account in list(self.accounts.values()):
            account.look()

    def sample(self, elapsed_s: float) -> None:
        """Bring the rates of all tabs up to date, and forget those at which nothing happens.

        Args:
            elapsed_s: since the last time; more than 0.
        """
        self.brought.now_s += elapsed_s
        for account in self.accounts.values():
            for tab in list(account.tabs.values()):
                tab.note()
                tab.sample(elapsed_s)
                if tab.message_rate == 0.0 and tab.octet_rate == 0.0:
                    account.close_tab(tab.group)
