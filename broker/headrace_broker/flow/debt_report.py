"""Reports between nodes about debts: work on one node for a client of another.

A report holds everything that the sessions of one node owe at another, as sums, with a number that
grows. It can be lost, repeated or overtaken: the newest one that arrives says all. What is not in
it is repaid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from headrace_broker.flow.account import Account
from headrace_broker.flow.loan import Loan
from headrace_broker.model.limits import REMOTE_DEBTS_MAX

REPORT_MS: Final = 100  # between reports; debts that are repaid faster are not told
REPEAT_MS: Final = 1000  # after which a report that was not answered is sent again
REFRESH_MS: Final = 5000  # after which a debt that stays as it is is told again
FIGURE_MAX: Final = (1 << 48) - 1  # of messages or bytes in a report; what is more is cut


class Debt(NamedTuple):
    """One line of a report."""

    cause: int  # session of the node that is told
    group: int  # queue at which it owes
    messages: int  # owed
    byte_count: int  # owed


@final
class DebtAnnouncement:
    """Report of one node to another, and its acknowledgement."""

    def __init__(self) -> None:
        self.number: i64 = 0  # of the newest report
        self.heard = True  # the other has answered it
        self.empty = True  # it said that nothing is owed
        self.changed = False  # what is owed has changed since
        self._sent_ms: i64 = 0

    def poll(self, now_ms: i64, owes: bool) -> bool:
        """Return whether to tell now, when the other does or does not owe anything."""
        passed = now_ms - self._sent_ms
        if self.changed:
            self.changed = owes or not self.empty or not self.heard
            return self.changed
        if not self.heard:
            return passed >= REPEAT_MS
        return not self.empty and passed >= REFRESH_MS

    def told(self, now_ms: i64, empty: bool) -> None:
        """A report leaves, with `number`."""
        self._sent_ms = now_ms
        self.changed = False
        self.heard = False
        self.empty = empty

    def answered(self, number: i64) -> None:
        """The other has heard a report."""
        if number == self.number:
            self.heard = True

    @property
    def is_over(self) -> bool:
        """True if there is nothing to report and nothing to wait for."""
        return self.empty and self.heard and not self.changed


@final
class ReportedDebts:
    """Debts of this node's accounts at other nodes, as reported by these."""

    def __init__(self, account: Callable[[int], Account | None]) -> None:
        self._account = account  # whose a session of this node is
        self._loans: dict[int, dict[tuple[int, int], Loan]] = {}  # node -> cause and group -> debt
        self._newest: dict[int, tuple[int, int]] = {}  # node -> its boot and number of report

    def receive(self, node: int, boot: int, number: int, debts: Iterable[Debt]) -> None:
        """Take over a report, unless a newer one was heard."""
        if self._newest.get(node, (0, 0)) >= (boot, number):
            return
        self._newest[node] = (boot, number)
        before = self._loans.pop(node, {})
        now: dict[tuple[int, int], Loan] = {}
        for debt in debts:
            if debt.messages <= 0 or len(now) == REMOTE_DEBTS_MAX:
                continue
            key = (debt.cause, debt.group)
            loan = before.pop(key, None) or now.get(key) or self._loan(debt)
            if loan is not None:
                now[key] = loan
                loan.owe(min(debt.messages, FIGURE_MAX), min(max(debt.byte_count, 0), FIGURE_MAX))
        if now:
            self._loans[node] = now
        for loan in before.values():
            loan.repay_all()

    def drop(self, node: int) -> None:
        """Drop the debts at a node that is gone with its work."""
        for loan in self._loans.pop(node, {}).values():
            loan.repay_all()

    def loans(self) -> list[tuple[int, Loan]]:
        """Return all debts with the nodes where the work waits."""
        return [(node, loan) for node, loans in self._loans.items() for loan in loans.values()]

    def _loan(self, debt: Debt) -> Loan | None:
        account = self._account(debt.cause)
        return None if account is None else Loan(account, debt.group)
