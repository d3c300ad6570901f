"""What stops all publishes of a connection, and which of its channels hold some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait
from typing_extensions import override

from headrace_broker.flow.account import Debtor
from headrace_broker.gateways.amqp.timers import TIMER_CLOSE, TIMER_RATE, Timers
from headrace_broker.model.flow import (
    BLOCKED,
    BLOCKING,
    FLOW,
    LIMIT_ACCOUNT,
    LIMIT_INTAKE,
    LIMIT_RATE,
    LIMIT_WATERMARK,
    NO_LIMIT,
    RUNNING,
    Cause,
)
from headrace_broker.model.limits import (
    CLOSE_SECONDS_MAX,
    HELD_MESSAGE_OCTETS,
    QUOTA_LOOK_SECONDS_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.port import ConnectionInfo

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.holding import Holding
    from headrace_broker.gateways.amqp.outlet import Outlet

STOP_ALARM: Final = 1  # a node is short of something
STOP_RATE: Final = 2  # the user or the vhost has published too fast
DEEPEST_TABS_MAX: Final = 16  # queues among which the one is looked for where most is owed


@trait
class Teller:
    """Tells the client what stops it."""

    def stopped(self) -> None:
        """A publish is held, the first since nothing was."""
        raise AssertionError("abstract")

    def going(self) -> None:
        """None is held any more."""
        raise AssertionError("abstract")


@final
class Brake(Debtor):
    """Stops the publishes of a connection: at alarms, rates and debts, which concern all channels.

    Attributes:
        account: what the connection owes.
        intake: the node's.
        stops: STOP_* bits.
        publisher: something was published.
        teller: tells the client, None before it is open.
        timers: the connection's.
        moved: publishes that were held were passed on since whoever clears this looked last.
        draining: the connection closes once nothing is held.
    """

    def __init__(self, outlet: Outlet, info: ConnectionInfo) -> None:
        self._outlet = outlet
        self._info = info
        self._broker = outlet.broker
        cause = Cause(info.id, info.kind, info.name, self._broker.node_name)
        self.account = self._broker.ledger.open(cause, self)
        self.intake = self._broker.intake
        self.stops: i64 = 0
        self.publisher = False
        self.teller: Teller | None = None
        self.moved = False
        self.draining = False
        self.timers = Timers(self._broker, outlet.shell)
        self._holders: dict[Holding, None] = {}  # who goes on first stands first
        self._withheld: dict[Holding, None] = {}  # channels of which confirms are withheld
        self._due = False
        self._held_octets: i64 = 0
        self._held_messages: i64 = 0
        info.account = self.account

    def close(self) -> None:
        """The connection is gone; what it owes it owes until that is done."""
        self._broker.ledger.close(self.account)
        self._outlet.share.close()

    @property
    def name(self) -> str:
        """The connection's, for logs."""
        return self._info.name

    @property
    def is_holding(self) -> bool:
        """Whether any publish is held, or waits behind an operation."""
        return self._held_messages > 0

    @property
    def is_stopped(self) -> bool:
        """Whether a limit stops any channel."""
        return len(self._holders) > 0

    @property
    def is_spent(self) -> bool:
        """True if methods have to wait for another turn of the loop."""
        return self._outlet.effort.is_spent

    def limit(self, served: bool) -> i64:
        """Return the limit that stops all channels now, NO_LIMIT for none.

        Args:
            served: they have waited at a gate for their turn, and it has come.
        """
        if self.stops != 0:
            return self._broker.blocked_limit if self.stops & STOP_ALARM else LIMIT_RATE
        if self.account.in_debt:
            return LIMIT_ACCOUNT
        gate = self.intake.gate
        return NO_LIMIT if gate.is_open or (served and gate.room) else LIMIT_INTAKE

    def deepest(self) -> i64:
        """Return the queue where most is owed, 0 where that takes long to find out."""
        tabs = self.account.tabs
        if len(tabs) > DEEPEST_TABS_MAX:
            return 0
        deepest: i64 = 0
        octets: i64 = 0
        for group, tab in tabs.items():
            if tab.octets > octets:
                deepest = group
                octets = tab.octets
        return deepest

    # What is held

    def now_us(self) -> i64:
        """Return the time for activities."""
        return self._broker.clock_us()

    def hold(self, messages: i64, octets: i64) -> None:
        """So many more publishes are held in a channel, or fewer."""
        self._held_messages += messages
        self._held_octets += octets
        self._info.held_messages = int(self._held_messages)
        self._info.held_octets = int(self._held_octets)
        size = octets + messages * HELD_MESSAGE_OCTETS
        if size > 0:
            self._outlet.share.hold(size)
        else:
            self._outlet.share.release(-size)
        if self.draining and self._held_messages == 0:
            self._outlet.wake()

    def hold_method(self, octets: i64) -> None:
        """A method of so many octets waits in a channel, or with a negative number no more."""
        if octets > 0:
            self._outlet.share.hold(octets)
        elif octets < 0:
            self._outlet.share.release(-octets)

    def has_room(self, octets: i64) -> bool:
        """Return whether publishes of a channel that ends may be handed over all the same."""
        return self.stops & STOP_ALARM == 0 and self.intake.can_take(octets)

    def drop(self, messages: i64, octets: i64) -> None:
        """Take note of publishes that were not."""
        ledger = self._broker.ledger
        ledger.dropped_messages += messages
        ledger.dropped_octets += octets

    def watch_closing(self) -> None:
        """A channel is to close once what it holds has gone, or moves no more."""
        if not self.timers.is_set(TIMER_CLOSE):
            self.timers.set(TIMER_CLOSE, float(CLOSE_SECONDS_MAX), self._look_at_closing)

    def _look_at_closing(self) -> None:
        waiting = [holder.look() for holder in list(self._holders)]
        if True in waiting:
            self.watch_closing()

    def join(self, holder: Holding) -> None:
        """A channel holds publishes from now on."""
        self._holders[holder] = None
        self.publisher = True
        if len(self._holders) == 1 and self.teller is not None:
            self.teller.stopped()

    def leave(self, holder: Holding) -> None:
        """It holds none any more."""
        del self._holders[holder]
        self.show()
        if not self._holders and self.teller is not None:
            self.teller.going()

    def withhold(self, holder: Holding) -> None:
        """Confirms of a channel are withheld, or no longer."""
        if holder.withheld_by == 0:
            del self._withheld[holder]
        else:
            self._withheld[holder] = None
        self.show()

    def stall(self, stalled: bool) -> None:
        """Too many other inputs wait in one channel, or no longer."""
        self._outlet.stall(stalled)

    def show(self) -> None:
        """Have listings tell what stops the connection now."""
        alarm = self.stops & STOP_ALARM != 0
        flow = self._info.flow
        if self._holders:
            head = next(iter(self._holders)).flow
            if flow.limit != head.limit or flow.group != head.group:
                flow.stop(head.limit, head.group, self.now_us())
            self._info.state = BLOCKED if alarm else FLOW
        elif self._withheld:
            flow.stop(LIMIT_WATERMARK, next(iter(self._withheld)).withheld_by, self.now_us())
            self._info.state = BLOCKING if alarm else FLOW
        else:
            if flow.limit != NO_LIMIT:
                flow.go(self.now_us())
            self._info.state = BLOCKING if alarm else RUNNING

    # Going on

    def wake(self) -> None:
        """Have `go_on` called at the end of the turn, if any channel holds publishes."""
        if self._holders and not self._due:
            self._due = True
            self._outlet.wake()

    def go_on(self) -> None:
        """Let the channels pass on what they hold, each in turn first."""
        if not self._due:
            return
        self._due = False
        holders = list(self._holders)
        first = holders[:1]
        for holder in holders:
            if holder in self._holders:
                holder.go_on()
        for holder in first:
            if holder in self._holders:
                del self._holders[holder]
                self._holders[holder] = None

    @override
    def on_clear_funds(self) -> None:
        self.wake()

    # Alarms and rates

    def block(self, blocked: bool) -> None:
        """Publishers are blocked, or no longer."""
        if blocked:
            self.stops |= STOP_ALARM
            for holder in list(self._holders):
                holder.stop(self._broker.blocked_limit, 0)
        else:
            self.stops &= ~STOP_ALARM
            self.wake()
        self.show()

    def published(self, publishes: list[Publish]) -> None:
        """Take note of publishes that pass; those behind them have to wait if that was too fast."""
        self.publisher = True
        quotas = self._broker.quotas
        info = self._info
        if quotas.limited and quotas.take(info.user, info.vhost, publishes):
            self.stops |= STOP_RATE
            if not self.timers.is_set(TIMER_RATE):
                self._look_later(quotas.wait_seconds(info.user, info.vhost))

    def _look_later(self, wait: float) -> None:
        """Look again when the wait is over, and sooner: limits may be raised or taken away."""
        self.timers.set(TIMER_RATE, min(wait, float(QUOTA_LOOK_SECONDS_MAX)), self._rate_over)

    def _rate_over(self) -> None:
        """Go on, unless others of the same user or vhost have taken more meanwhile."""
        info = self._info
        wait = self._broker.quotas.wait_seconds(info.user, info.vhost)
        if wait > 0:
            self._look_later(wait)
        else:
            self.stops &= ~STOP_RATE
            self.wake()
