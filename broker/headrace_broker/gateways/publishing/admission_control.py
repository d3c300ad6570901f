"""Admission control of a connection: limits that stop all of its channels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, trait
from typing_extensions import override

from headrace_broker.flow.account import Account, AccountOwner
from headrace_broker.flow.activity import Activity
from headrace_broker.flow.effort import Effort
from headrace_broker.flow.gate import Waiter
from headrace_broker.flow.share import Share
from headrace_broker.gateways.publishing.timers import TIMER_CLOSE, TIMER_RATE, Timers
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
    HELD_MESSAGE_BYTES,
    QUOTA_LOOK_SECONDS_MAX,
)
from headrace_broker.model.message import Publish
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo

DEEPEST_BALANCES_MAX: Final = 16  # queues among which the one is looked for where most is owed


@trait
class BlockedNotifier:
    """Notifier of a client whose publishes are stopped."""

    def stopped(self) -> None:
        """Take note that a publish is buffered, the first since none was."""
        raise AssertionError("abstract")

    def going(self) -> None:
        """Note that no publish is buffered."""
        raise AssertionError("abstract")


@trait
class Turn:
    """The connection's turn of the loop, as its admission of publishes sees it."""

    def wake(self) -> None:
        """Schedule a call of `AdmissionControl.go_on` at the end of the turn."""
        raise AssertionError("abstract")

    def stall(self, stalled: bool) -> None:
        """Note that too many commands wait in one channel, or no longer."""
        raise AssertionError("abstract")


class WaitingPublisher(Waiter):
    """A channel or stream with publishes that may have to wait."""

    def __init__(self, account: Account, flow: Activity) -> None:
        self.account = account
        self.flow = flow  # what stops it
        # the queue that defers its confirms for longest, 0 for none. That stops no publish, so it
        # is what stops the channel only where nothing else does.
        self.deferred_by: i64 = 0

    @abstractmethod
    def stop(self, limit: i64, group: i64) -> None:
        """Note what stops it: a limit, and the queue that it belongs to or 0."""

    @abstractmethod
    def go_on(self) -> None:
        """Pass on buffered publishes, as far as no limit stops them."""

    @abstractmethod
    def poll(self) -> bool:
        """Close the channel if nothing has moved since the last look; else return True."""


@final
class AdmissionControl(AccountOwner):
    """Admits the publishes of a connection, or stops them at alarms, rates and debts.

    These limits concern all channels; each `PublishAdmission` asks here before it passes on any.
    """

    def __init__(
        self,
        broker: Broker,
        info: ConnectionInfo,
        share: Share,
        effort: Effort,
        timers: Timers,
        turn: Turn,
    ) -> None:
        self._broker = broker
        self._blocked = broker.blocked
        self._info = info
        self._share = share
        self._effort = effort
        self._turn: Turn | None = turn  # None once it is closed
        cause = Cause(info.id, info.kind, info.name, self._broker.node_name)
        self.account = self._broker.ledger.open(cause, self)  # what the connection owes
        self.intake = broker.intake  # the node's
        self.flow_limits = broker.flow  # in force on the node
        self.too_fast = False  # the user or the vhost has published too fast
        self.publisher = False  # the connection has published
        self.notifier: BlockedNotifier | None = None  # tells the client, None before it is open
        self.moved = False  # buffered publishes were passed on since this was cleared
        self.draining = False  # the connection closes once nothing is buffered
        self.timers = timers  # the connection's
        self._holders: dict[WaitingPublisher, None] = {}  # who goes on first stands first
        self._deferred: dict[WaitingPublisher, None] = {}  # channels of which confirms are deferred
        self._due = False
        self._buffered_bytes: i64 = 0
        self.buffered_messages: i64 = 0
        info.account = self.account

    def close(self) -> None:
        """Close the account and share; what the connection owes it owes until that is done.

        No reference is left to what refers to this, so that a closed connection is freed at once.
        """
        self._broker.ledger.close(self.account)
        self._share.close()
        self.timers.clear()
        self.notifier = None
        self._turn = None

    @property
    def name(self) -> str:
        """Name of the connection, for logs."""
        return self._info.name

    @property
    def is_holding(self) -> bool:
        """True while any publish is buffered."""
        return self.buffered_messages > 0

    @property
    def is_stopped(self) -> bool:
        """True if a limit stops any channel."""
        return len(self._holders) > 0

    @property
    def is_spent(self) -> bool:
        """True if commands have to wait for another turn of the loop."""
        return self._effort.is_spent

    def limit(self, served: bool) -> i64:
        """Return the limit that stops all channels now, NO_LIMIT for none.

        Args:
            served: they have waited at a gate for their turn, and it has come.
        """
        alarm = self._blocked.now.limit
        if alarm != NO_LIMIT:
            return alarm
        if self.too_fast:
            return LIMIT_RATE
        if self.account.in_debt:
            return LIMIT_ACCOUNT
        gate = self.intake.gate
        return NO_LIMIT if gate.is_open or (served and gate.room) else LIMIT_INTAKE

    def deepest(self) -> i64:
        """Return the queue where most is owed, 0 where that takes long to find out."""
        balances = self.account.balances
        if len(balances) > DEEPEST_BALANCES_MAX:
            return 0
        deepest: i64 = 0
        byte_count: i64 = 0
        for group, balance in balances.items():
            if balance.byte_count > byte_count:
                deepest = group
                byte_count = balance.byte_count
        return deepest

    # Buffered publishes

    def now_us(self) -> i64:
        """Return the clock of activities, in microseconds."""
        return self._broker.clock_us()

    def hold(self, messages: i64, byte_count: i64) -> None:
        """Count publishes that a channel buffers; negative for those that it buffers no more."""
        self.buffered_messages += messages
        self._buffered_bytes += byte_count
        self._info.buffered_messages = int(self.buffered_messages)
        self._info.buffered_bytes = int(self._buffered_bytes)
        size = byte_count + messages * HELD_MESSAGE_BYTES
        if size > 0:
            self._share.hold(size)
        else:
            self._share.release(-size)
        if self.draining and self.buffered_messages == 0:
            self._wake_turn()

    def hold_command(self, byte_count: i64) -> None:
        """Count bytes of a command that waits; negative for one that waits no more."""
        if byte_count > 0:
            self._share.hold(byte_count)
        elif byte_count < 0:
            self._share.release(-byte_count)

    def has_room(self, byte_count: i64) -> bool:
        """Return whether there is room for publishes of a channel that ends."""
        return not self._blocked.now.is_on and self.intake.can_take(byte_count)

    def drop(self, messages: i64) -> None:
        """Count publishes that were dropped."""
        self._broker.ledger.dropped_messages += messages

    def watch_closing(self) -> None:
        """Close a channel once its buffer is empty, or stands still for CLOSE_SECONDS_MAX."""
        if not self.timers.is_set(TIMER_CLOSE):
            self.timers.set(TIMER_CLOSE, float(CLOSE_SECONDS_MAX), self._look_at_closing)

    def _look_at_closing(self) -> None:
        waiting = [holder.poll() for holder in list(self._holders)]
        if True in waiting:
            self.watch_closing()

    def join(self, holder: WaitingPublisher) -> None:
        """Add a channel that buffers publishes from now on."""
        self._holders[holder] = None
        self.publisher = True
        if len(self._holders) == 1 and self.notifier is not None:
            self.notifier.stopped()

    def leave(self, holder: WaitingPublisher) -> None:
        """Remove a channel without buffered publishes."""
        del self._holders[holder]
        self.show()
        if not self._holders and self.notifier is not None:
            self.notifier.going()

    def defer(self, holder: WaitingPublisher) -> None:
        """Note that confirms of a channel are deferred, or no longer."""
        if holder.deferred_by == 0:
            del self._deferred[holder]
        else:
            self._deferred[holder] = None
        self.show()

    def stall(self, stalled: bool) -> None:
        """Note that too many commands wait in one channel, or no longer."""
        if self._turn is not None:
            self._turn.stall(stalled)

    def show(self) -> None:
        """Update the state and limit that listings show."""
        alarm = self._blocked.now.is_on
        flow = self._info.flow
        if self._holders:
            head = next(iter(self._holders)).flow
            if flow.limit != head.limit or flow.group != head.group:
                flow.stop(head.limit, head.group, self.now_us())
            self._info.state = BLOCKED if alarm else FLOW
        elif self._deferred:
            flow.stop(LIMIT_WATERMARK, next(iter(self._deferred)).deferred_by, self.now_us())
            self._info.state = BLOCKING if alarm else FLOW
        else:
            if flow.limit != NO_LIMIT:
                flow.go(self.now_us())
            self._info.state = BLOCKING if alarm else RUNNING

    # Going on

    def wake(self) -> None:
        """Schedule `go_on` at the end of the turn, if any channel buffers publishes."""
        if self._holders and not self._due:
            self._due = True
            self._wake_turn()

    def _wake_turn(self) -> None:
        if self._turn is not None:
            self._turn.wake()

    def go_on(self) -> None:
        """Pass on buffered publishes of all channels; a different one is first each time."""
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

    def blocked_changed(self) -> None:
        """Stop buffered publishes at the alarm, or go on with them."""
        blocked = self._blocked.now
        if blocked.is_on:
            for holder in list(self._holders):
                holder.stop(blocked.limit, blocked.group)
        else:
            self.wake()
        self.show()

    def published(self, publishes: list[Publish]) -> None:
        """Charge publishes to the quotas; those behind them wait if that was too fast."""
        self.publisher = True
        quotas = self._broker.quotas
        info = self._info
        if quotas.limited and quotas.take(info.user, info.vhost, publishes):
            self.too_fast = True
            if not self.timers.is_set(TIMER_RATE):
                self._look_later(quotas.wait_seconds(info.user, info.vhost))

    def _look_later(self, wait: float) -> None:
        """Check the rate when the wait is over, or sooner: limits may be raised or taken away."""
        self.timers.set(TIMER_RATE, min(wait, float(QUOTA_LOOK_SECONDS_MAX)), self._rate_over)

    def _rate_over(self) -> None:
        """Clear the rate limit, unless others of the same user or vhost took more meanwhile."""
        info = self._info
        wait = self._broker.quotas.wait_seconds(info.user, info.vhost)
        if wait > 0:
            self._look_later(wait)
        else:
            self.too_fast = False
            self.wake()
