"""Debts across nodes: each tells the others what their clients owe for work that waits here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, final

from typing_extensions import override

from headrace_broker.flow.account import AccountOwner, Ledger
from headrace_broker.flow.charges import Charge, ChargeObserver, Charges
from headrace_broker.flow.debt_report import (
    REPEAT_MS,
    REPORT_MS,
    Debt,
    DebtAnnouncement,
    ReportedDebts,
)
from headrace_broker.model.flow import DEAD_LETTERS, Cause
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.payload import Payload, encode


class DebtReport(Payload, tag="debt_report"):
    """Debts of the receiver's sessions for work that waits at the sender.

    It is all of it; what is not named is repaid.
    """

    boot: int  # the sender's; reports of a later boot, and of a higher number, are newer
    number: int
    debts: list[tuple[int, int, int, int]]  # cause, group, messages and bytes of each `Debt`


class DebtHeard(Payload, tag="debt_heard"):
    """The answer to a report."""

    boot: int
    number: int


class Owed(NamedTuple):
    """Debt of an account for work beyond its own publishes."""

    cause: Cause  # whose account it is
    node: int  # id of the node on which the work waits
    group: int  # queue that it waits for
    messages: int  # owed
    byte_count: int  # owed


@final
class _Observer(ChargeObserver):
    def __init__(self, debts: RemoteDebts) -> None:
        self._debts = debts

    @override
    def on_changed(self, home: int) -> None:
        self._debts.changed(home)


@final
class _Unknown(AccountOwner):
    def __init__(self, debts: RemoteDebts) -> None:
        self._debts = debts

    @override
    def on_clear_funds(self) -> None:
        self._debts.on_clear_funds()


@final
class RemoteDebts:
    """Charges work to its ultimate cause, wherever in the cluster that is."""

    def __init__(
        self,
        node: tuple[int, str],  # id and name of this node
        ledger: Ledger,  # its accounts
        boot: Callable[[], int],
        send: Callable[[int, bytes], bool],
        clock: Clock | None = None,  # gives the time that passes
    ) -> None:
        self._node, self._name = node
        cause = Cause(f"{self._name}/{DEAD_LETTERS}", DEAD_LETTERS, DEAD_LETTERS, self._name)
        # called when that account has come down to its low mark
        self.on_clear_funds: Callable[[], None] = _nothing
        # the account of work of which nobody knows any more who caused it
        self.unknown = ledger.open(cause, _Unknown(self))
        # what is under way on this node, by cause and queue
        self.charges = Charges(self._node, ledger, self.unknown, _Observer(self))
        # what accounts of this node owe elsewhere
        self.reported = ReportedDebts(self.charges.account)
        self._boot = boot  # how many times this node was started
        self._send = send  # carries a payload to a node; False when it did not leave
        self._clock = Clock() if clock is None else clock
        self._tellings: dict[int, DebtAnnouncement] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self._stopped = False

    def stop(self) -> None:
        """Stop reporting."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    # Announcing

    def changed(self, home: int) -> None:
        """Note that debts of a node's clients here have changed; one report will tell it soon."""
        telling = self._tellings.get(home)
        if telling is None:
            telling = DebtAnnouncement()
            self._tellings[home] = telling
        if not telling.changed:
            telling.changed = True
            self._wake_in(REPORT_MS)

    def _wake_in(self, delay_ms: int) -> None:
        wake_ms = int(self._clock.monotonic_ms()) + delay_ms
        if self._stopped or (self._handle is not None and self._wake_ms <= wake_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._wake_ms = wake_ms
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tell)

    def _tell(self) -> None:
        self._handle = None
        now_ms = int(self._clock.monotonic_ms())
        for home, telling in list(self._tellings.items()):
            owed = self.charges.owed_to(home)
            if telling.poll(now_ms, bool(owed)):
                self._report(home, telling, owed, now_ms)
        if any(not telling.is_over for telling in self._tellings.values()):
            self._wake_in(REPEAT_MS)

    def _report(
        self, home: int, telling: DebtAnnouncement, owed: list[Charge], now_ms: int
    ) -> None:
        telling.number += 1
        report = DebtReport(self._boot(), telling.number, [_line(charge) for charge in owed])
        if self._send(home, encode(report)):
            telling.told(now_ms, not owed)  # else it is as changed as before

    # Other nodes

    def receive_report(self, peer: int, report: DebtReport) -> None:
        """Take over what clients of this node owe at another, and say that it was heard."""
        debts = [Debt(*each) for each in report.debts]
        self.reported.receive(peer, report.boot, report.number, debts)
        self._send(peer, encode(DebtHeard(report.boot, report.number)))

    def receive_heard(self, peer: int, heard: DebtHeard) -> None:
        """A node has heard a report."""
        telling = self._tellings.get(peer)
        if telling is not None and heard.boot == self._boot():
            telling.answered(heard.number)

    def peer_changed(self, peer: int, up: bool) -> None:
        """Drop the debts at a node that came or went, and report to it from the beginning."""
        self.reported.drop(peer)
        if up and peer in self._tellings:
            self.changed(peer)

    # Looking

    def causes(self, group: int) -> list[Owed]:
        """Return who of this node's clients owes something at a queue, the deepest in debt first.

        What they owe for their own publishes is not in it. The lists of all nodes together have
        each debt once.
        """
        return [owed for owed in self._all() if owed.group == group]

    def _all(self) -> list[Owed]:
        here = self.charges.select(lambda charge: charge.home == 0)
        loans = [(self._node, charge.loan) for charge in here] + self.reported.loans()
        owed = [
            Owed(loan.account.cause, node, loan.group, int(loan.messages), int(loan.byte_count))
            for node, loan in loans
        ]
        owed.sort(key=lambda each: each.byte_count, reverse=True)
        return owed


def _line(charge: Charge) -> tuple[int, int, int, int]:
    loan = charge.loan
    return int(charge.cause), int(loan.group), int(loan.messages), int(loan.byte_count)


def _nothing() -> None:
    """Do nothing until the node has said what to do."""
