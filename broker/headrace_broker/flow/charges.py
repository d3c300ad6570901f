"""Charges for work that is done here as a consequence: to accounts here or on another node.

Whatever a node does on somebody's behalf, it charges to the account of the *cause*: the session
whose command started the chain, wherever that session is. The debt of a session of this node is its
account's own. For one of another node, this node keeps a proxy, and tells the session's node the
sums (`debt_report`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.loan import Loan
from headrace_broker.model.flow import Cause
from headrace_broker.model.limits import CAUSES_REMEMBERED_MAX, REMOTE_DEBTS_MAX
from headrace_broker.model.session import session_node

NO_CAUSE: Final = 0  # instead of a session id: the cause is forgotten


@mypyc_attr(allow_interpreted_subclasses=True)
class ChargeObserver:
    """Reporter of debts here to the nodes of their owners."""

    @abstractmethod
    def on_changed(self, home: int) -> None:
        """Note that debts of a node's sessions have changed; called for each change."""


@final
class Charge:
    """Debt of one cause at one queue for work under way on this node."""

    def __init__(self, charges: Charges, cause: i64, home: int, loan: Loan) -> None:
        self.cause = cause  # session id, or NO_CAUSE
        self.home = home  # the node to which it is told, 0 where the account is here
        self.loan = loan  # the debt
        self._charges = charges

    def borrow(self, messages: i64, byte_count: i64) -> None:
        """Work begins."""
        self.loan.borrow(messages, byte_count)
        if self.home:
            self._charges.observer.on_changed(self.home)

    def borrow_unbrought(self, messages: i64, byte_count: i64) -> None:
        """Owe more, for what dies in the queue."""
        self.loan.borrow_unbrought(messages, byte_count)
        if self.home:
            self._charges.observer.on_changed(self.home)

    def repay(self, messages: i64, byte_count: i64) -> None:
        """Work is done, or was dropped."""
        self.loan.repay(messages, byte_count)
        if self.loan.messages == 0:
            self._charges.forget(self)
        if self.home:
            self._charges.observer.on_changed(self.home)


@final
class Charges:
    """All charges of a node, and the accounts of its own sessions."""

    def __init__(
        self, node: int, ledger: Ledger, unknown: Account, observer: ChargeObserver
    ) -> None:
        self.observer = observer  # tells the other nodes
        self.unknown = unknown  # is charged for what nobody else can be
        self._node = node
        self._ledger = ledger
        self._open: dict[int, Account] = {}
        self._ended: dict[int, Account] = {}  # sessions that are closed, the longest first
        self._charges: dict[tuple[int, int], Charge] = {}  # by cause and group
        self._proxies: dict[int, Account] = {}

    # Who is who

    def register(self, session: int, account: Account) -> None:
        """Register the account of a session of this node."""
        self._open[session] = account

    def end(self, session: int) -> None:
        """A session is closed; for a while it may still be named as a cause."""
        account = self._open.pop(session, None)
        if account is None:
            return
        self._ended[session] = account
        if len(self._ended) > CAUSES_REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]

    def account(self, session: int) -> Account | None:
        """Return the account of a session of this node; None if unknown or ended."""
        account = self._open.get(session)
        if account is None:
            account = self._ended.get(session)
        if account is None or self._ledger.accounts.get(account.cause.account) is not account:
            return None
        return account

    # Debts

    def charge(self, cause: int, group: int) -> Charge:
        """Return what a cause owes at a queue; to be used at once, and kept until all is repaid."""
        known = self._charges.get((cause, group))
        if known is not None:
            return known
        home = session_node(cause)
        account: Account | None = None
        if home != self._node and home > 0 and len(self._charges) < REMOTE_DEBTS_MAX:
            account = self._proxy(cause)
        elif home == self._node:
            home = 0
            account = self.account(cause)
        if account is None:
            return self._charge_unknown(group)
        charge = Charge(self, cause, home, Loan(account, group))
        self._charges[(cause, group)] = charge
        return charge

    def _charge_unknown(self, group: int) -> Charge:
        charge = self._charges.get((NO_CAUSE, group))
        if charge is None:
            charge = Charge(self, NO_CAUSE, 0, Loan(self.unknown, group))
            self._charges[(NO_CAUSE, group)] = charge
        return charge

    def _proxy(self, cause: int) -> Account:
        account = self._proxies.get(cause)
        if account is None:
            account = Account(Cause(f"session {cause:x}", "", "", ""), self._ledger.limits)
            self._proxies[cause] = account
        return account

    def forget(self, charge: Charge) -> None:
        """Keep no place for a debt that is repaid."""
        key = (int(charge.cause), charge.loan.group)
        if self._charges.get(key) is charge:
            del self._charges[key]
        if charge.home and charge.loan.account.messages == 0:
            self._proxies.pop(int(charge.cause), None)

    # Looking

    @property
    def count(self) -> int:
        """Number of debts."""
        return len(self._charges)

    def owed_to(self, home: int) -> list[Charge]:
        """Return what sessions of another node owe here."""
        return [charge for charge in self._charges.values() if charge.home == home]

    def select(self, wanted: Callable[[Charge], bool]) -> list[Charge]:
        """Return debts, those of proxies among them."""
        return [charge for charge in self._charges.values() if wanted(charge)]
